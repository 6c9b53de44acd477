# SPDX-License-Identifier: Apache-2.0
"""A broker and two stages, each in its own container; they share only the sockets' directory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from container import PATIENCE_S, Broker, Stage

COUNT = 1 << 20
BYTES = 4 * COUNT


def summed(start: int) -> int:
    return COUNT * start + COUNT * (COUNT - 1) // 2


def eventually(what: str, test: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := test()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)
    return answer


@pytest.fixture
def broker(run: Callable[..., Any]) -> Any:
    return run(Broker)


@pytest.fixture
def numpy_stage(broker: Any, run: Callable[..., Any]) -> Any:
    return run(Stage, "numpy")


@pytest.fixture
def torch_stage(broker: Any, run: Callable[..., Any]) -> Any:
    return run(Stage, "torch")


def test_the_stages_share_no_namespace(numpy_stage: Any, torch_stage: Any) -> None:
    one, other = numpy_stage.ask("namespaces"), torch_stage.ask("namespaces")
    assert [kind for kind in one["in"] if one["in"][kind] == other["in"][kind]] == []
    for each in (one, other):
        assert each["processes"] <= 2  # itself and its container's init process
        assert each["run"] == ["arraybridge"]
        assert each["shm"] == []


def test_bytes_cross_without_being_copied(numpy_stage: Any, torch_stage: Any) -> None:
    made = numpy_stage.ask("put", "frame", 7)
    before = numpy_stage.ask("stats")
    got = torch_stage.ask("get", "frame")
    assert (got["start"], got["sum"]) == (7, summed(7))
    # The reader maps the file that the producer wrote, and a second reader needs no more memory in the broker.
    assert got["inode"] == made["inode"] and got["name"].startswith("/memfd:")
    assert numpy_stage.ask("stats")["arenas"] == before["arenas"]
    assert torch_stage.ask("stats")["client_arena_bytes"] == 0
    # In the other direction, with the other framework as the producer.
    made = torch_stage.ask("put", "answer", -3)
    got = numpy_stage.ask("get", "answer")
    assert (got["start"], got["sum"], got["inode"]) == (-3, summed(-3), made["inode"])
    assert got["rights"] == "r--s"


def test_no_memory_is_in_use_after_all_is_dropped(numpy_stage: Any, torch_stage: Any) -> None:
    numpy_stage.ask("put", "frame", 1)
    torch_stage.ask("get", "frame")
    torch_stage.ask("drop", "frame")
    for count in ("leases", "hazard_slots", "tickets", "waiting"):
        eventually(f"no {count}", lambda count=count: numpy_stage.ask("stats")[count] == 0)
    stats = numpy_stage.ask("stats")
    assert (stats["sessions"], stats["shares"], stats["arenas"]) == (2, 1, 1)


@pytest.mark.parametrize("victim", ["maker", "reader"])
def test_a_killed_stage_does_not_affect_others(numpy_stage: Any, torch_stage: Any, run: Callable[..., Any], victim: str) -> None:
    numpy_stage.ask("put", "frame", 5)
    torch_stage.ask("get", "frame")
    (numpy_stage if victim == "maker" else torch_stage).kill()
    survivor = torch_stage if victim == "maker" else numpy_stage
    if victim == "maker":
        assert survivor.ask("look", "frame") == {"start": 5, "sum": summed(5)}
    eventually("the session ends", lambda: survivor.ask("stats")["sessions"] == 1)
    # Named shares outlive their producer, and a later container finds them.
    later = run(Stage, "numpy")
    got = later.ask("get", "frame")
    assert (got["start"], got["sum"]) == (5, summed(5))
    if victim == "reader":
        later.ask("drop", "frame")
        eventually("its claims end with it", lambda: survivor.ask("stats")["leases"] + survivor.ask("stats")["hazard_slots"] == 0)


def test_arrays_in_use_outlive_a_killed_broker(broker: Any, numpy_stage: Any, torch_stage: Any, run: Callable[..., Any]) -> None:
    numpy_stage.ask("put", "frame", 9)
    torch_stage.ask("get", "frame")
    broker.kill()
    assert torch_stage.ask("look", "frame") == {"start": 9, "sum": summed(9)}
    # The next broker serves in the same directory: containers mount the directory, never a socket.
    run(Broker)
    numpy_stage.ask("put", "frame", 10)
    assert torch_stage.ask("get", "frame")["start"] == 10
