# SPDX-License-Identifier: Apache-2.0
"""Followers whose publisher or broker is killed, and forked children of followers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import eventually
from processes import daemons_of, environment, start_daemon, stop_daemon

from arraybridge import Broker

torch = pytest.importorskip("torch", reason="torch is not installed")

from followers import LAYERS, ONES, following, network, numbered, on_meta, prepared, published

HERE = Path(__file__).parent
# Publishes versions 2 and 3 in turns until it is killed; "half" stops between the reservation and the publication.
PUBLISHER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from followers import numbered, published
from arraybridge import Broker
broker = Broker(sys.argv[1], namespace=sys.argv[3], start="never")
nets = [numbered(2), numbered(3)]
turn = 0
while sys.argv[4] == "whole":
    published(broker, nets[turn % 2])
    turn += 1
    if turn == 5:
        print("published", flush=True)
writer = broker.bundle("net", nets[1].state_dict(), replace=True)
writer["0.weight"][...] = 9
print("published", flush=True)
time.sleep(600)
"""


def publisher(broker: Broker, how: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", PUBLISHER, str(broker.address), str(HERE), broker.namespace, how]
    variables = environment()
    variables["PYTHONPATH"] += os.pathsep + str(HERE.parents[1] / "faults")
    process = subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "published\n"
    return process


@pytest.mark.parametrize("how", ["whole", "half"])
def test_a_publisher_that_is_killed_leaves_whole_weights(broker: Broker, how: str) -> None:
    published(broker, numbered(2))
    model = on_meta()
    with following(model, broker) as follower:
        process = publisher(broker, how)
        whole = {float(version**LAYERS) for version in (2, 3)}
        for _ in range(200):
            assert set(model(ONES).unique().tolist()) <= whole
        process.kill()
        process.communicate()
        for _ in range(200):
            assert set(model(ONES).unique().tolist()) <= whole
        published(broker, numbered(4))
        eventually("the next publisher is followed", lambda: (model(ONES) == 4**LAYERS).all())
        assert follower.stats().refused == 0


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Broker]:
    """A Broker whose daemon has a keeper, which starts the next one."""
    with tempfile.TemporaryDirectory(prefix="ab-") as folder:
        daemon = start_daemon(folder, "--log-level", "warn", "--keeper")
        with Broker(folder, start="never", timeout_s=60) as made:
            yield made
        stop_daemon(daemon)


def test_a_broker_that_is_killed_is_followed_when_it_goes_on(kept: Broker) -> None:
    published(kept, numbered(1))
    model = on_meta()
    with following(model, kept) as follower:
        for version in (2, 3, 4):
            [daemon] = daemons_of(str(kept.address))
            os.kill(daemon, signal.SIGKILL)
            assert (model(ONES) == (version - 1) ** LAYERS).all()
            published(kept, numbered(version))
            eventually("it follows", lambda version=version: (model(ONES) == version**LAYERS).all(), follower.stats)
            assert daemons_of(str(kept.address)) != [daemon]


def test_another_broker_at_the_address_is_followed_from_its_first_generation(tmp_path: Path) -> None:
    """Its generations count anew."""
    with tempfile.TemporaryDirectory(prefix="ab-") as folder:
        daemon = start_daemon(folder, "--log-level", "warn")
        with Broker(folder, start="never", timeout_s=60) as broker:
            for version in (1, 1, 1):
                published(broker, numbered(version))
            model = on_meta()
            with following(model, broker) as follower:
                daemon.kill()
                daemon.wait()
                assert (model(ONES) == 1).all()
                eventually("the error is told", lambda: follower.stats().error)
                daemon = start_daemon(folder, "--log-level", "warn")
                share = published(broker, numbered(2))
                assert share.generation < follower.generation
                eventually("it follows", lambda: (model(ONES) == 2**LAYERS).all(), follower.stats)
        assert stop_daemon(daemon) == 0


FORKED = """
import os, sys
sys.path.insert(0, sys.argv[2])
from followers import LAYERS, ONES, following, network, numbered, on_meta, prepared, published
from arraybridge import Broker
from arraybridge.integrations.torch import attach
import torch
torch.set_num_threads(1)
broker = Broker(sys.argv[1], namespace="forked", start="never")
published(broker, numbered(2))
model = on_meta()
with following(model, broker) as follower:
    published(broker, numbered(3))
    prepared(follower)
    go, tell = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        def answers():
            return set(model(ONES).unique().tolist())
        assert answers() == {2.0 ** LAYERS} and not follower.swap()
        os.write(tell[1], b"1")
        os.read(go[0], 1)
        assert answers() == {2.0 ** LAYERS}, "the parent has swapped three times, and the memory was used again"
        with follower.reading() as bundle:
            assert answers() == {2.0 ** LAYERS}
        follower.close()
        again = attach(model, broker.open("net"), follow=True)
        assert answers() == {5.0 ** LAYERS} and again.generation > bundle.share.generation
        os._exit(0)
    os.read(tell[0], 1)
    assert (model(ONES) == 3 ** LAYERS).all()
    for version in (4, 5):
        published(broker, numbered(version))
        prepared(follower)
        assert (model(ONES) == version ** LAYERS).all()
    os.write(go[1], b"1")
    assert os.waitpid(child, 0)[1] == 0
print("ok")
"""


def test_a_forked_child_keeps_its_generation_and_may_attach_again(address: str) -> None:
    words = [sys.executable, "-c", FORKED, address, str(HERE)]
    variables = environment()
    variables["PYTHONPATH"] += os.pathsep + str(HERE.parents[1] / "faults")
    done = subprocess.run(words, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


def resident(model: Any) -> float:
    """The proportional share of this process, in bytes, of the memory under a model."""
    first, last = (pick(t.data_ptr() for t in model.parameters()) for pick in (min, max))
    inside = False
    found = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        word = line.split()[0]
        if "-" in word:
            begin, end = (int(each, 16) for each in word.split("-"))
            inside = begin <= last and end > first
        elif inside and word == "Pss:":
            found += int(line.split()[1]) * 1024
    return found


def test_followers_read_the_same_physical_memory(broker: Broker) -> None:
    """Two models of this process over one bundle: together they have one copy, and so have two processes."""
    published(broker, numbered(1, 1024, 5))
    models = [on_meta(lambda: network(1024, 5)) for _ in range(2)]
    size = sum(parameter.nbytes for parameter in models[0].parameters())
    with following(models[0], broker), following(models[1], broker) as second:
        published(broker, numbered(2, 1024, 5))
        prepared(second)
        given = torch.ones(1, 1024)
        eventually("both follow", lambda: all((model(given) == 2**5).all() for model in models))
        assert sum(resident(model) for model in models) <= 1.1 * size
