# SPDX-License-Identifier: Apache-2.0
"""Deaths of nodes and of brokers, in Ray clusters of their own."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

ray = pytest.importorskip("ray")
from ray_cluster import Nodes, eventually, kill_daemon
from ray_tasks import Holder, made, on, read

import arraybridge
import arraybridge.integrations.ray as abr
from arraybridge.errors import BrokerUnavailable, ShareNotFound
from arraybridge.integrations.ray_node import node_broker

MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Callable[..., Nodes]]:
    """The cluster that the test before had, if it has the same nodes: a node takes seconds of CPU to start."""
    running: dict[tuple[int, bool], Nodes] = {}

    def close() -> None:
        while running:
            running.popitem()[1].close()

    def start(count: int, kept: bool = False) -> Nodes:
        if (count, kept) not in running:
            close()
            running[count, kept] = Nodes(count, kept)
        return running[count, kept]

    yield start
    close()


def test_a_share_spreads_over_the_nodes_that_have_it(cluster: Callable[..., Nodes]) -> None:
    nodes = cluster(4)
    share = abr.put(np.ones(64 * MIB, "u1"))
    readers = [Holder.options(**on(name)).remote() for name in "bcd"]
    ray.get([reader.keep.remote([share]) for reader in readers])
    assert ray.get([reader.sum.remote(0) for reader in readers for _ in range(2)]) == [64.0 * MIB] * 6
    counts = [ray.get(node_broker(node.id).counts.remote()) for node in nodes.all]
    assert [each["pulls"] for each in counts] == [0, 1, 1, 1]
    assert sum(each["sent"] for each in counts) == 3 and counts[0]["sent"] <= 2
    for reader in readers:
        ray.kill(reader)
    del share
    gc.collect()
    nodes.leave_nothing()
    counts = [ray.get(node_broker(node.id).counts.remote()) for node in nodes.all]
    assert [(each["replicas"], each["copies"]) for each in counts] == [(0, 0)] * 4


def test_a_broker_that_is_lost(cluster: Callable[..., Nodes]) -> None:
    """Without a keeper: its shares are gone, which readers are told; the cluster goes on with the next broker."""
    nodes = cluster(4)
    share = ray.get(made.options(**on("b")).remote(10))
    held = Holder.options(**on("a")).remote()
    ray.get(held.keep.remote([share]))
    assert ray.get(held.sum.remote(0)) == 45
    nodes["b"].restart()
    eventually("the replica ends", lambda: nodes["a"].left()[0] == 0)
    with pytest.raises(ray.exceptions.RayTaskError) as refused:
        ray.get(held.sum.remote(0))
    assert isinstance(refused.value.cause, ShareNotFound) and "ended with an earlier run of that broker" in str(refused.value)
    again = ray.get(made.options(**on("b")).remote(10))
    assert again.get().sum() == 45
    del share, again, refused
    gc.collect()
    ray.kill(held)
    nodes.leave_nothing()


def test_a_lost_node(cluster: Callable[..., Nodes]) -> None:
    nodes = cluster(4)
    lost, kept = ray.get([made.options(**on(name)).remote(MIB) for name in "da"])
    held = Holder.options(**on("b")).remote()
    for share in lost, kept:
        ray.get(held.keep.remote([share]))
    total = ray.get(held.sum.remote(0))
    assert ray.get(held.sum.remote(1)) == total
    nodes.cluster.remove_node(nodes["d"].raylet, allow_graceful=False)
    eventually("its replica ends on the other node", lambda: nodes["b"].left()[0] == 1)
    assert ray.get(held.sum.remote(1)) == total
    with pytest.raises((ShareNotFound, BrokerUnavailable), match="put the array again"):
        lost.get()
    del lost, kept, share
    gc.collect()
    ray.kill(held)
    nodes.all.pop().close()
    nodes.leave_nothing()


def test_a_source_that_is_lost_in_mid_transfer(cluster: Callable[..., Nodes]) -> None:
    """Its broker goes on, but its node broker no longer knows its readers: the move begins anew."""
    nodes = cluster(2, kept=True)
    share = abr.put(np.ones(150 * MIB, "u1"))
    held = Holder.options(**on("b")).remote()
    ray.get(held.keep.remote([share]))
    reading = held.sum.remote(0)
    source = node_broker(nodes["a"].id)
    eventually("it moves", lambda: ray.get(source.counts.remote())["sent"] == 1)
    kill_daemon(nodes["a"].directory)
    assert ray.get(reading) == 150.0 * MIB
    del share
    gc.collect()
    ray.kill(held)
    nodes.leave_nothing()


def test_sessions_of_local_clusters() -> None:
    """Each counts its jobs from 1; what an earlier one had ends, also if nothing is put in the later one."""
    program = """
import gc, time
import numpy as np, ray
import arraybridge.integrations.ray as abr
from arraybridge.broker.replica import broker_of
kept = []
for last in (False, True):
    ray.init("local", num_cpus=1, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
    kept.append(abr.put(np.ones(10)))
    assert kept[-1].get().sum() == 10
    ray.shutdown()
deadline = time.monotonic() + 30
while broker_of("default").list() and time.monotonic() < deadline:
    time.sleep(0.1)
print(len(broker_of("default").list()))
"""
    with arraybridge.Broker(start="private") as private:
        environment = {**os.environ, "ARRAYBRIDGE_ADDRESS": private.address}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_broker_that_is_killed_and_comes_back(cluster: Callable[..., Nodes]) -> None:
    nodes = cluster(2, kept=True)
    share = abr.put(np.ones(MIB, "u1"))
    held = Holder.options(**on("b")).remote()
    ray.get(held.keep.remote([share]))
    for _ in range(3):
        for node in nodes.all:
            kill_daemon(node.directory)
            assert ray.get(held.sum.remote(0)) == 1.0 * MIB
            assert ray.get(read.options(**on("b")).remote(share))[0] == 1.0 * MIB
            assert ray.get(read.options(**on("a")).remote(ray.get(made.options(**on("b")).remote(2))))[0] == 1
    del share
    gc.collect()
    ray.kill(held)
    nodes.leave_nothing()
