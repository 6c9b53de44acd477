# SPDX-License-Identifier: Apache-2.0
"""Core, the extension's connection: ids of one life alone, signals during waits, memory in forked children."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from processes import start_daemon, stop_daemon

from arraybridge import _core

NOT_FOUND = 5
ELSEWHERE = bytes(16)


def core_at(address, timeout_s=20.0):
    return _core.Core(str(address), "default", timeout_s, "test")


def published(core, name, number):
    return core.publish(core.place([_core.wrap(np.full(8, number))]), name)


def names(core):
    return [row["share"].name for row in core.list()]


def test_an_id_is_of_one_life_of_the_broker(tmp_path: Path):
    daemon = start_daemon(str(tmp_path))
    core = core_at(tmp_path)
    old = published(core, "mine", 1.0)
    again, _ = core.acquire("", old.id, old.generation, broker_id=old.broker_id)
    assert again.name == "mine"
    for call in (core.acquire, core.withdraw):
        with pytest.raises(_core.StatusError, match="another life") as raised:
            call("", old.id, old.generation, broker_id=ELSEWHERE)
        assert raised.value.code == NOT_FOUND
    assert names(core) == ["mine"]

    stop_daemon(daemon)
    daemon = start_daemon(str(tmp_path))
    core = core_at(tmp_path)
    new = published(core, "somebody else's", 2.0)
    assert (new.id, new.generation) == (old.id, old.generation), "as it was before: only the life tells them apart"
    for call in (core.acquire, core.withdraw):
        with pytest.raises(_core.StatusError, match="another life"):
            call("", old.id, old.generation, broker_id=old.broker_id)
    assert names(core) == ["somebody else's"]
    core.withdraw("", new.id, new.generation, broker_id=new.broker_id)
    assert names(core) == []
    stop_daemon(daemon)


class Rang(Exception):
    """What the handler of the alarm raises."""


@contextmanager
def alarm() -> Iterator[None]:
    """A signal soon, and again until it was heard."""

    def ring(*_):
        raise Rang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(Rang):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_ends_a_wait_for_a_name(address):
    core = core_at(address)
    with alarm():
        core.acquire("a name that never comes", wait_s=20.0)
    assert core.stats()["sessions"] >= 1


def test_a_signal_ends_every_call_to_a_broker_that_does_not_answer(tmp_path: Path):
    daemon = start_daemon(str(tmp_path))
    core = core_at(tmp_path)
    placement = core.place([_core.wrap(np.ones(8))])
    calls = {
        "stats": core.stats,
        "list": core.list,
        "acquire": lambda: core.acquire("x"),
        "withdraw": lambda: core.withdraw("x"),
        "place": lambda: core.place([_core.wrap(np.ones(1 << 20))], "", _core.PutOptions(sealed=True)),
        "flush": core.flush,
        "publish": lambda: core.publish(placement, "late"),
    }
    os.kill(daemon.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)  # until then it may still answer
    for call in calls.values():
        with alarm():
            call()
    os.kill(daemon.pid, signal.SIGCONT)
    # What was asked was done all the same, and its answers belong to nobody.
    assert core.stats()["leases"] == 0
    assert names(core) == ["late"]
    assert published(core, "next", 2.0).name == "next"
    stop_daemon(daemon)


def test_a_forked_child_may_write_to_what_its_parent_placed(client):
    client(
        """
import os, sys
import numpy as np
import arraybridge
broker = arraybridge.Broker(sys.argv[1], namespace="forked", start="never")
array = broker.empty(5000, "float64")
array[:] = 1
converted = broker.convert(np.ones(300), "torch", copy=True)
for child in range(2):
    process = os.fork()
    if process == 0:
        array += 1
        converted.add_(1)
        os._exit(0 if (array == 2).all() and bool((converted == 2).all()) else 3)
    assert os.waitpid(process, 0)[1] == 0
assert (array == 1).all() and bool((converted == 1).all())
array[:] = 7
broker.put(array, "written after the fork")
assert (broker.get("written after the fork") == 7).all()
"""
    )
