# SPDX-License-Identifier: Apache-2.0
"""Ray with a broker on each node: what is mapped, what is moved, and what is left after every death."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ray = pytest.importorskip("ray")
import arrow_table
from ray_cluster import STORE_BYTES, Node, Nodes, eventually
from ray_tasks import Holder, made, memory_of, on, read

import arraybridge
import arraybridge.integrations.ray as abr
from arraybridge.broker.replica import broker_of
from arraybridge.errors import BrokerError, BrokerUnavailable, InvalidRequest, ShareNotFound
from arraybridge.integrations.ray_node import node_broker

MIB = 1 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    nodes = Nodes(2)
    yield nodes
    nodes.close()


@pytest.fixture
def nodes(cluster: Nodes) -> Iterator[Nodes]:
    """Two nodes with nothing in their brokers, before and after."""
    cluster.leave_nothing()
    yield cluster
    gc.collect()
    cluster.leave_nothing()


def pulls(node: Node) -> int:
    return int(ray.get(node_broker(node.id).counts.remote())["pulls"])


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_tasks_of_both_nodes_read(nodes: Nodes, framework: str) -> None:
    share = abr.put(np.arange(1000, dtype="f4"))
    for name in "ab":
        total, module, _ = ray.get(read.options(**on(name)).remote(share, framework))
        assert (total, module.removesuffix("lib")) == (499500.0, framework)


def test_a_node_maps_the_memory_itself(nodes: Nodes) -> None:
    share = abr.put(np.ones(8 * MIB, "u1"))
    holders = [Holder.options(**on("a")).remote() for _ in range(2)]
    for holder in holders:
        ray.get(holder.keep.remote([share]))
        ray.get(holder.map.remote())
    assert [ray.get(holder.mapped.remote()) for holder in holders] == [8.0 * MIB] * 2
    memories = {ray.get(holder.memory.remote()) for holder in holders}
    assert len(memories) == 1 and not memories.pop().startswith("00:00 0 ")
    assert nodes["b"].left() == (0, 0)
    assert share.get(explain=True).plan.copies == 0


def test_what_is_born_in_the_broker_is_not_copied(nodes: Nodes) -> None:
    frame = abr.empty((4, MIB), "u1")
    frame[...] = 3
    share = abr.put(frame)
    assert memory_of(share.get()) == memory_of(frame)
    with pytest.raises(ValueError):
        frame[0, 0] = 1
    assert ray.get(read.options(**on("b")).remote(share))[0] == 12.0 * MIB


def test_a_node_receives_a_share_once(nodes: Nodes) -> None:
    share = abr.put(np.ones(16 * MIB, "u1"))
    before = pulls(nodes["b"])
    assert {total for total, _, _ in ray.get([read.options(**on("b")).remote(share) for _ in range(6)])} == {16.0 * MIB}
    assert pulls(nodes["b"]) == before + 1
    assert nodes["b"].left()[0] == 1


def test_a_share_larger_than_the_object_store(nodes: Nodes) -> None:
    share = abr.put([np.full(150 * MIB, 1, "u1"), np.ones(7), np.zeros(0), np.full(210 * MIB, 2, "u1")])

    @ray.remote
    def sums(share: Any) -> list[float]:
        return [float(array.sum()) for array in share.get()]

    assert share.nbytes > STORE_BYTES
    assert ray.get(sums.options(**on("b")).remote(share)) == [150.0 * MIB, 7, 0, 420.0 * MIB]


def test_a_table_moves_to_the_other_node(nodes: Nodes) -> None:
    share = abr.put({"table": arrow_table.ArrowTable(), "n": 5})

    @ray.remote
    def check(share: Any) -> Any:
        got = share.get()
        return *arrow_table.read(got["table"]), got["n"]

    for node in ("a", "b"):
        assert ray.get(check.options(**on(node)).remote(share)) == (*arrow_table.EXPECTED, 5)


def test_trees_bundles_and_what_numpy_lacks(nodes: Nodes) -> None:
    torch = pytest.importorskip("torch")
    broker = broker_of("default")
    shares = [
        abr.put({"image": np.arange(6).reshape(2, 3), "label": "cat", "masks": [np.ones(3, bool)]}, metadata=b"seen"),
        abr.put(torch.full((2, 3), 1.5, dtype=torch.bfloat16)),
        abr.put(np.zeros((0, 3))),
        abr.put(np.array(["2026-11-27"], "M8[D]")),
        abr.put(broker.bundle(None, {"w": np.ones((2, 3)), "b": np.zeros(3)}, fingerprint=b"net").fill()),
    ]

    @ray.remote
    def check(shares: list[Any]) -> str:
        tree, half, empty, days, bundle = shares
        got = tree.get()
        assert got["label"] == "cat" and got["image"].tolist() == [[0, 1, 2], [3, 4, 5]] and got["masks"][0].all()
        assert tree.metadata == b"seen" == tree.local().metadata
        assert half.get("torch").dtype == torch.bfloat16 and half.get("torch").sum() == 9
        assert empty.get().shape == (0, 3) and str(days.get()[0]) == "2026-11-27"
        assert bundle.open().fingerprint == b"net" and bundle.open().numpy()["w"].sum() == 6
        return str(tree.get(explain=True).plan)

    assert "moved once" not in ray.get(check.options(**on("a")).remote(shares))
    assert "moved once to this one by Ray's object store" in ray.get(check.options(**on("b")).remote(shares))


def test_a_share_stays_while_an_actor_holds_it(nodes: Nodes) -> None:
    holders = [Holder.options(**on(name)).remote() for name in "ab"]
    share = abr.put(np.ones(MIB, "u1"))
    ray.get([holder.keep.remote([share]) for holder in holders])
    del share
    gc.collect()
    time.sleep(0.5)  # if it were withdrawn, it would be by now
    assert [ray.get(holder.sum.remote(0)) for holder in holders] == [1.0 * MIB] * 2
    ray.get(holders[0].drop.remote(0))
    assert ray.get(holders[1].sum.remote(0)) == 1.0 * MIB


@pytest.mark.parametrize("name", ["a", "b"])
def test_an_array_outlives_its_share(nodes: Nodes, name: str) -> None:
    holder = Holder.options(**on(name)).remote()
    share = abr.put(np.ones(MIB, "u1"))
    ray.get(holder.keep.remote([share]))
    ray.get(holder.map.remote())
    ray.get(holder.drop.remote(0))
    del share
    eventually("the share is withdrawn", lambda: [node.broker.list() for node in nodes.all] == [[], []])
    assert ray.get(holder.mapped.remote()) == 1.0 * MIB


def test_a_holder_that_is_killed_holds_nothing(nodes: Nodes) -> None:
    holder = Holder.options(**on("b")).remote()
    share = abr.put(np.ones(MIB, "u1"))
    ray.get(holder.keep.remote([share]))
    ray.get(holder.map.remote())
    del share
    ray.kill(holder)


def test_a_share_of_a_task_is_withdrawn_where_it_was_made(nodes: Nodes) -> None:
    share = ray.get(made.options(**on("b")).remote(10))
    assert share.node == nodes["b"].id and share.get().sum() == 45
    assert nodes["b"].left()[0] == 1


def test_a_killed_owner_leaves_its_share_for_the_grace(nodes: Nodes) -> None:
    owner = Holder.options(**on("b")).remote()
    share = ray.get(owner.make.remote(MIB))
    assert share.get().sum() == MIB
    os.kill(ray.get(owner.pid.remote()), signal.SIGKILL)
    assert ray.get(read.options(**on("b")).remote(share))[0] == 1.0 * MIB
    eventually("the share and its replica end", lambda: [node.broker.list() for node in nodes.all] == [[], []])
    with pytest.raises(ShareNotFound):
        ray.get(made.options(**on("a")).remote(1))  # the cluster goes on
        abr.Share(share._record, share.node, None).get()


def test_a_killed_node_broker_comes_back(nodes: Nodes) -> None:
    share = abr.put(np.ones(MIB, "u1"))
    holder = Holder.options(**on("b")).remote()
    ray.get(holder.keep.remote([share]))
    assert ray.get(holder.sum.remote(0)) == 1.0 * MIB
    for name in "ab":  # that of the reader, then that of the source
        ray.kill(node_broker(nodes[name].id), no_restart=False)
        assert ray.get(holder.sum.remote(0)) == 1.0 * MIB
        assert ray.get(read.options(**on("b")).remote(share))[0] == 1.0 * MIB


def test_withdrawn_by_hand(nodes: Nodes) -> None:
    share = abr.put(np.ones(MIB, "u1"))
    assert ray.get(read.options(**on("b")).remote(share))[0] == 1.0 * MIB
    share.local().withdraw()
    eventually("the replica ends", lambda: nodes["b"].broker.list() == [])
    for name in "ab":
        with pytest.raises(ray.exceptions.RayTaskError) as refused:
            ray.get(read.options(**on(name)).remote(share))
        assert isinstance(refused.value.cause, ShareNotFound)


def test_tasks_run_near_a_share(nodes: Nodes) -> None:
    share = ray.get(made.options(**on("b")).remote(10))
    where = ray.remote(num_cpus=0)(lambda: ray.get_runtime_context().get_node_id())
    assert ray.get(where.options(scheduling_strategy=abr.near(share)).remote()) == nodes["b"].id


def test_start_names_the_brokers(nodes: Nodes) -> None:
    assert abr.start() == abr.start() == {node.id: node.directory for node in nodes.all}


def test_a_new_session_of_ray_ends_the_shares_of_the_last(nodes: Nodes) -> None:
    share = abr.put(np.ones(10))
    assert nodes["a"].left()[0] == 1
    ray.shutdown()
    ray.init(address=nodes.cluster.address, log_to_driver=False)
    again = abr.put(np.ones(10))
    eventually("only the new one is left", lambda: len(nodes["a"].broker.list()) == 1)
    assert again.get().sum() == 10 and share != again


def test_stopped_by_another_driver(nodes: Nodes) -> None:
    holder = Holder.options(**on("b")).remote()
    share = abr.put(np.ones(MIB, "u1"))
    ray.get(holder.keep.remote([share]))
    for _ in range(2):
        assert ray.get(holder.sum.remote(0)) == 1.0 * MIB
        for node in nodes.all:  # as `stop` does there
            ray.kill(ray.get_actor(f"arraybridge-{node.id}", "arraybridge"))
        another = abr.put(np.ones(MIB, "u1"))
        ray.get(holder.keep.remote([another]))
        assert ray.get(holder.sum.remote(-1)) == 1.0 * MIB
    assert abr.start() == {node.id: node.directory for node in nodes.all}


def test_a_get_that_fails_keeps_nothing(nodes: Nodes) -> None:
    holder = Holder.options(**on("b")).remote()
    gone, kept = abr.put(np.ones(3)), abr.put(np.ones(MIB, "u1"))
    gone.local().withdraw()
    ray.get(holder.keep.remote([gone]))
    assert "ShareNotFound" in ray.get(holder.fails.remote(kept))
    del gone, kept
    eventually("the worker has dropped both", lambda: nodes["a"].broker.list() == [])


def test_shares_of_one_array_end_apart(nodes: Nodes) -> None:
    mine = broker_of("default").put(np.ones(10), "mine")
    first, second = abr.share_of(mine), abr.share_of(mine)
    third = abr.share_of(second.local())
    del first
    eventually("it is withdrawn", lambda: len(nodes["a"].broker.list()) == 3)
    assert second.get().sum() == third.get().sum() == 10 and memory_of(second.get()) == memory_of(third.get())
    mine.withdraw()
    assert ray.get(read.options(**on("b")).remote(second))[0] == 10


def test_a_broker_that_does_not_answer_when_the_last_reference_goes(nodes: Nodes) -> None:
    share = abr.put(np.ones(MIB, "u1"))
    nodes["a"].daemon.send_signal(signal.SIGSTOP)
    del share
    gc.collect()
    time.sleep(12)  # longer than a call waits
    nodes["a"].daemon.send_signal(signal.SIGCONT)


def test_a_process_with_another_broker_than_its_node(nodes: Nodes) -> None:
    share = abr.put(np.ones(3))
    with arraybridge.Broker(start="private") as third:
        other = {"env_vars": {"ARRAYBRIDGE_ADDRESS": third.address}}
        with pytest.raises(ray.exceptions.RayTaskError, match="another broker than the node broker of its node"):
            ray.get(read.options(**on("b"), runtime_env=other).remote(share))


def test_wrong_arguments_say_what_to_do(nodes: Nodes) -> None:
    with arraybridge.Broker(nodes["b"].directory) as other:
        stranger = other.put(np.ones(3))
        with pytest.raises(InvalidRequest, match="is not in the broker of this node"):
            abr.share_of(stranger)
        stranger.withdraw()
    with pytest.raises(BrokerError, match="object"):
        abr.put(np.array([object()]))
    share = abr.put(np.ones(3))
    with pytest.raises(InvalidRequest, match="bundle"):
        share.open()
    with pytest.raises(InvalidRequest, match="metadata"):
        abr.put(broker_of("default").bundle(None, {"w": np.ones(3)}).fill(), metadata=b"x")
    with pytest.raises(InvalidRequest, match="namespace"):
        abr.put(np.ones(3), namespace=3)  # type: ignore[arg-type]
    for call in abr.share_of, abr.near:
        with pytest.raises(InvalidRequest, match="not int"):
            call(3)
    assert np.asarray(share).tolist() == [1, 1, 1]
    text = repr(share)
    assert share.name in text and "float64 (3,)" in text and share.node in text


def test_a_tensor_transport(nodes: Nodes) -> None:
    pytest.importorskip("torch")
    from ray_tensors import Tensors, nested

    abr.register()  # again
    hook = {"worker_process_setup_hook": "arraybridge.integrations.ray.register"}
    maker, *readers = [Tensors.options(**on(name), runtime_env=hook).remote() for name in "aab"]
    tensor = maker.make.remote(MIB)
    assert ray.get([reader.sum.remote(tensor) for reader in readers]) == [1.0 * MIB] * 2
    assert nodes["a"].left()[0] == nodes["b"].left()[0] == 1
    assert ray.get(nested.options(**on("b"), runtime_env=hook).remote([tensor])) == 1.0 * MIB
    assert ray.get(readers[1].into.remote([tensor, MIB])) == (1.0 * MIB, True)
    numbers = ray.get(readers[0].numbers.remote())  # what is not passed by the transport is as before
    assert isinstance(numbers, np.ndarray) and not numbers.flags.writeable
    with pytest.raises(ray.exceptions.RayTaskError, match="broken"):
        ray.get(readers[1].sum.remote(maker.fail.remote()))
    ray.kill(maker)
    assert ray.get([reader.sum_kept.remote() for reader in readers]) == [1.0 * MIB] * 2
    for reader in readers:  # Ray keeps the reader of the result that failed
        ray.kill(reader)


def test_without_a_broker(nodes: Nodes, tmp_path: Path) -> None:
    """A task that finds none, and must not start one, says so."""
    nowhere = {"env_vars": {"ARRAYBRIDGE_ADDRESS": str(tmp_path), "ARRAYBRIDGE_START": "never"}}
    share = abr.put(np.ones(3))
    for task, argument in ((read, share), (made, 3)):
        with pytest.raises(ray.exceptions.RayTaskError) as refused:
            ray.get(task.options(**on("a"), runtime_env=nowhere).remote(argument))
        assert isinstance(refused.value.cause, BrokerUnavailable) and str(tmp_path) in str(refused.value)
