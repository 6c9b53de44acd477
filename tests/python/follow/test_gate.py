# SPDX-License-Identifier: Apache-2.0
"""A Gate: calls that enter and leave, and changes that are made while no call is inside."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import pytest

from arraybridge.integrations.follow.gate import Gate


class Counted:
    """A gate whose changes are counted, and whose calls run on threads of the test."""

    def __init__(self, patience_s: float = 60.0, limit_s: float = 60.0) -> None:
        self.changes = 0
        self.gate = Gate(self.change, patience_s, limit_s)

    def change(self) -> None:
        self.changes += 1

    def call(self) -> int:
        number = self.gate.enter()
        changes = self.changes
        self.gate.leave(number)
        return changes


def on_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


class Caller:
    """A call on another thread that is inside until `end`."""

    def __init__(self, gate: Gate) -> None:
        self._gate, self._inside, self._over = gate, threading.Event(), threading.Event()
        self._thread = on_thread(self._run)
        self._inside.wait()

    def _run(self) -> None:
        number = self._gate.enter()
        self._inside.set()
        self._over.wait()
        self._gate.leave(number)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def test_the_next_call_makes_an_announced_change_once() -> None:
    counted = Counted()
    assert counted.call() == 0
    counted.gate.announce()
    assert counted.call() == 1 and counted.call() == 1
    assert counted.gate.wait_made(0.0) and not counted.gate.withdraw()


def test_no_change_while_a_call_is_inside() -> None:
    counted = Counted()
    other = Caller(counted.gate)
    counted.gate.announce()
    assert counted.call() == 0 and not counted.gate.make(0.01) and not counted.gate.wait_made(0.0)
    other.end()
    assert counted.call() == 1


def test_a_call_inside_a_call_of_its_thread_neither_changes_nor_waits() -> None:
    counted = Counted(patience_s=0.0)
    number = counted.gate.enter()
    counted.gate.announce()
    assert counted.call() == 0 and not counted.gate.make(60.0)
    counted.gate.leave(number)
    assert counted.call() == 1


def test_an_overdue_change_keeps_calls_out_until_those_inside_have_left() -> None:
    counted = Counted(patience_s=0.0)
    calls = [Caller(counted.gate) for _ in range(3)]
    counted.gate.announce()
    ended = threading.Timer(0.05, lambda: [call.end() for call in calls])
    ended.start()
    assert counted.call() == 1
    ended.join()


def test_calls_do_not_wait_longer_than_the_limit() -> None:
    counted = Counted(patience_s=0.0, limit_s=0.02)
    other = Caller(counted.gate)
    counted.gate.announce()
    assert counted.call() == 0
    other.end()
    assert counted.gate.make(0.0) and counted.changes == 1


def test_overlapping_calls_of_several_threads_do_not_put_a_change_off() -> None:
    """Each of four threads is inside nearly always."""
    counted = Counted(patience_s=0.02)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            number = counted.gate.enter()
            time.sleep(0.002)  # the work of a call
            counted.gate.leave(number)

    threads = [on_thread(serve) for _ in range(4)]
    for _ in range(10):
        counted.gate.announce()
        assert counted.gate.wait_made(60.0)
    over.set()
    for thread in threads:
        thread.join()
    assert counted.changes == 10


def test_calls_that_enter_during_a_change_wait_for_its_end() -> None:
    begun, over = threading.Event(), threading.Event()
    seen: list[str] = []

    def change() -> None:
        begun.set()
        over.wait()
        seen.append("changed")

    gate = Gate(change, 60.0, 60.0)
    gate.announce()
    changes = on_thread(lambda: gate.leave(gate.enter()))
    begun.wait()
    calls = on_thread(lambda: (gate.leave(gate.enter()), seen.append("called")))
    over.set()
    calls.join()
    changes.join()
    assert seen == ["changed", "called"] and not gate.withdraw()


def test_what_was_announced_can_be_withdrawn() -> None:
    counted = Counted()
    counted.gate.announce()
    assert counted.gate.withdraw() and counted.call() == 0 and not counted.gate.withdraw()


def test_an_error_of_the_change_is_that_of_the_call_and_leaves_the_gate_open() -> None:
    gate = Gate(lambda: 1 / 0, 60.0, 60.0)
    gate.announce()
    with pytest.raises(ZeroDivisionError):
        gate.enter()
    gate.leave(gate.enter())


def test_a_change_may_call() -> None:
    counted = Counted()
    gate = Gate(lambda: counted.gate.leave(counted.gate.enter()), 60.0, 60.0)
    counted.gate = gate
    gate.announce()
    gate.leave(gate.enter())
    assert gate.wait_made(0.0)


def interrupted(gate: Gate) -> None:
    """A call that Ctrl-C ends: nothing tells the gate that it has left."""
    gate.enter(sys._getframe())


def test_a_call_that_ended_without_leaving_is_forgotten_by_the_next_one_of_its_thread() -> None:
    counted = Counted()
    interrupted(counted.gate)
    counted.gate.announce()
    assert counted.call() == 1


def test_a_call_of_a_thread_that_has_ended_is_forgotten() -> None:
    counted = Counted(patience_s=0.0)
    on_thread(lambda: interrupted(counted.gate)).join()
    counted.gate.announce()
    assert counted.gate.make(60.0) and counted.changes == 1


def test_a_call_that_runs_is_not_forgotten() -> None:
    counted = Counted()
    counted.gate.enter(sys._getframe())
    counted.gate.announce()
    assert counted.call() == 0
