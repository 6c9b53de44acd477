# SPDX-License-Identifier: Apache-2.0
"""Unwaited puts: their arrays are found at once, their failures are told late, and none is lost silently."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import daemons_of

import arraybridge
from arraybridge import BrokerUnavailable, InvalidRequest, ShareExists, _core


def meet(broker: arraybridge.Broker) -> None:
    """From here on small arrays go through the session queue."""
    for number in range(3):
        assert broker.put(np.zeros(8), f"meet/{number}", wait=False) is None
    assert broker.stats()["client_unwaited_publishes"] > 0


def test_an_unwaited_put_is_found_at_once(broker: arraybridge.Broker) -> None:
    meet(broker)
    before = broker.stats()["client_unwaited_publishes"]
    with arraybridge.Broker(broker.address, namespace=broker.namespace) as reader:
        for number in range(100):
            broker.put(np.full((3, 5), number, dtype="i2"), f"frame/{number}", wait=False)
            found = reader.get(f"frame/{number}")
            assert found.dtype == "i2" and found.shape == (3, 5) and (found == number).all()
    assert broker.stats()["client_unwaited_publishes"] == before + 100
    broker.flush()


def test_trees_large_arrays_and_replacing_work_as_ever(broker: arraybridge.Broker) -> None:
    meet(broker)
    tree = {"x": np.arange(5), "y": [np.ones(3), np.zeros((2, 2), dtype="f4")]}
    broker.put(tree, "tree", wait=False)
    found = broker.get("tree")
    assert found["x"].tolist() == [0, 1, 2, 3, 4] and found["y"][1].dtype == np.float32
    large = np.arange(3 << 20)
    broker.put(large, "large", wait=False)
    assert (broker.get("large") == large).all()
    for number in range(5):
        broker.put(np.array([number]), "again", replace=True, wait=False)
        assert broker.get("again").tolist() == [number]
    broker.put(np.ones(2), "sealed", sealed=True, wait=False)
    assert broker.get("sealed").tolist() == [1, 1]
    broker.put(np.ones(2), "described", metadata=b"m" * 300, wait=False)
    broker.flush()


def test_an_array_that_is_put_in_place_is_frozen(broker: arraybridge.Broker) -> None:
    meet(broker)
    array = broker.empty((4,), "float64")
    array[:] = 3
    broker.put(array, "born", wait=False)
    assert broker.get("born").tolist() == [3, 3, 3, 3]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize("wait", [True, False])
def test_a_put_enters_the_extension_once(broker: arraybridge.Broker, monkeypatch: pytest.MonkeyPatch, wait: bool) -> None:
    entered: list[str] = []
    put, put_ordinary = _core.Core.put, _core.put

    def noted(core: _core.Core, name: str, *rest: Any) -> object:
        entered.append(name)
        return put(core, name, *rest)

    def noted_ordinary(core: _core.Core, maker: Any, name: str, *rest: Any) -> object:
        entered.append(name)
        return put_ordinary(core, maker, name, *rest)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a second call")

    monkeypatch.setattr(_core.Core, "put", noted)
    monkeypatch.setattr(_core, "put", noted_ordinary)
    for other in ("empty", "place", "placement_of", "publish"):
        monkeypatch.setattr(_core.Core, other, refused)
    broker.put({"x": np.arange(5), "y": [np.ones(3)]}, "tree", wait=wait)
    broker.put(np.ones(4), "array", wait=wait)
    broker.put(np.ones(4), "sealed", sealed=True, wait=wait)
    assert entered == ["tree", "array", "sealed"]
    assert broker.get("tree")["x"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", ["put", "flush", "close", "put_many"])
def test_a_failure_is_raised_later(broker: arraybridge.Broker, how: str) -> None:
    meet(broker)
    broker.put(np.ones(1), "taken")
    broker.put(np.zeros(1), "fine", wait=False)
    broker.put(np.zeros(1), "taken", wait=False)
    broker.stats()  # the broker has taken it, and nobody has looked what became of it
    with pytest.raises(ShareExists, match="'taken'"):
        if how == "put":
            broker.put(np.zeros(1), "finds out", wait=False)
            broker.put(np.zeros(1), "not done", wait=False)
        elif how == "put_many":
            broker.put_many({"finds out": np.zeros(1)})
        else:
            getattr(broker, how)()
    assert "not done" not in {each.share.name for each in broker.list()}
    assert broker.get("fine").tolist() == [0] and broker.get("taken").tolist() == [1]
    broker.flush()


def test_a_name_is_needed(broker: arraybridge.Broker) -> None:
    with pytest.raises(InvalidRequest, match="needs a name"):
        broker.put(np.ones(1), wait=False)  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest, match="wait must be True or False"):
        broker.put(np.ones(1), "x", wait=0.5)  # type: ignore[call-overload]


def test_the_first_failure_is_told_first() -> None:
    with arraybridge.Broker(start="private") as broker:
        meet(broker)
        for name in ("taken/0", "taken/1", "taken/2"):
            broker.put(np.ones(1), name)
        (daemon,) = daemons_of(broker.address)
        stop(daemon)
        broker.put(np.ones(1), "taken/0", wait=False)
        broker.put(np.ones(1), "taken/1", wait=False)
        awake = threading.Timer(0.2, os.kill, (daemon, signal.SIGCONT))
        awake.start()
        with pytest.raises(ShareExists, match="unwaited publish of share 'taken/0'.*2 more"):
            broker.put(np.ones(1), "taken/2", metadata=b"m" * 5000, wait=False)  # too long for an entry: it is waited for
        awake.join()
        broker.flush()  # all of it was told


def test_many_are_there_when_put_many_returns(broker: arraybridge.Broker) -> None:
    arrays = {f"many/{number}": np.full(4, number) for number in range(600)}
    broker.put_many(arrays)
    with arraybridge.Broker(broker.address, namespace=broker.namespace) as reader:
        for found, number in zip(reader.get_many(list(arrays)), range(600), strict=True):
            assert found.tolist() == [number] * 4
    with pytest.raises(ShareExists, match="'many/0'"):
        broker.put_many(arrays)
    broker.flush()  # all of it was told
    broker.put_many({"many/0": np.zeros(1)}, replace=True)
    assert broker.get("many/0").tolist() == [0]
    broker.put_many({})
    broker.put_many({"late": np.ones(1)}, wait=False)
    broker.flush()


def test_get_many_takes_as_many_as_one_likes_and_holds_what_it_knows(broker: arraybridge.Broker) -> None:
    names = [f"n{number}" for number in range(700)]
    broker.put_many({name: np.array([number]) for number, name in enumerate(names)})
    wanted = names + names[:3]
    for _ in range(4):
        arrays = broker.get_many(wanted)
        assert [array[0] for array in arrays] == [*range(700), 0, 1, 2]
        del arrays
    before = broker.stats()
    assert len(broker.get_many(names[:200])) == 200
    assert broker.stats()["acquires_total"] == before["acquires_total"]
    with pytest.raises(KeyError):
        broker.get_many([*names, "nowhere"])


PROGRAM = """
import numpy, sys, arraybridge
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[3])
broker.put(numpy.ones(1), "taken")
for number in range(4):
    broker.put(numpy.array([number]), f"ended/{number}", wait=False)
if sys.argv[2] == "fails":
    broker.put(numpy.zeros(1), "taken", wait=False)
if sys.argv[2] == "killed":
    import os
    os._exit(0)
"""


@pytest.mark.parametrize("how", ["leaves", "fails", "killed"])
def test_a_process_that_ends_has_put(broker: arraybridge.Broker, how: str) -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM, broker.address, how, broker.namespace], capture_output=True, text=True)
    assert ended.returncode == 0
    assert ("ShareExists" in ended.stderr) == (how == "fails"), ended.stderr
    for number in range(4):
        assert broker.get(f"ended/{number}", wait=30).tolist() == [number]


def test_a_child_puts_for_itself(broker: arraybridge.Broker) -> None:
    meet(broker)
    broker.put(np.ones(1), "parent/0", wait=False)
    child = os.fork()
    if child == 0:
        try:
            for number in range(10):
                broker.put(np.array([number]), f"child/{number}", wait=False)
            broker.flush()
            os._exit(0)
        except BaseException:
            os._exit(1)
    for number in range(1, 10):
        broker.put(np.array([number]), f"parent/{number}", wait=False)
    assert os.waitpid(child, 0)[1] == 0
    broker.flush()
    assert len(broker.list("parent/")) == 10 and len(broker.list("child/")) == 10


def test_a_broker_that_dies_takes_nothing_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARRAYBRIDGE_KEEPER", "off")
    with arraybridge.Broker(start="private") as broker:
        meet(broker)
        (daemon,) = daemons_of(broker.address)
        stop(daemon)
        broker.put(np.ones(1), "lost/0", wait=False)
        broker.put(np.ones(1), "lost/1", wait=False)
        os.kill(daemon, signal.SIGKILL)
        with pytest.raises(BrokerUnavailable):
            broker.list()
        with pytest.raises(BrokerUnavailable, match="unwaited publish of share 'lost/0'.*1 more"):
            broker.flush()


def stop(daemon: int) -> None:
    """Returns when none of its threads runs any more: a signal that was sent is not yet a process that stands still."""
    os.kill(daemon, signal.SIGSTOP)
    for _ in range(10_000):
        states = []
        for task in Path(f"/proc/{daemon}/task").glob("*/stat"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                states.append(task.read_text().rpartition(")")[2].split()[0])
        if set(states) == {"T"}:
            return
        time.sleep(0.001)
    raise AssertionError(f"the daemon does not stop: {states}")
