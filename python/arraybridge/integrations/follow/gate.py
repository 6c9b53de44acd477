# SPDX-License-Identifier: Apache-2.0
"""A Gate keeps the calls of a module and the changes of its weights apart."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

_SLICE_S: Final = 0.1  # after which a waiting thread looks for threads that have ended inside


class _Inside:
    """The calls of one thread that have entered and not left: how many, and a frame below the first of them."""

    __slots__ = ("depth", "frame")

    def __init__(self, frame: FrameType | None) -> None:
        self.depth = 1
        self.frame = frame


def _is_running(frame: FrameType | None) -> bool:
    """Whether this thread executes it; None: yes."""
    here: FrameType | None = sys._getframe()
    while frame is not None and here is not None and here is not frame:
        here = here.f_back
    return here is not None


class Gate:
    """Calls enter and leave. A change is announced, and made once, by a thread that enters while no call is inside; calls
    that enter meanwhile wait. Thread-safe.

    A change that was announced `patience_s` ago is overdue. A call that enters then waits until the calls that are inside
    have left, at most for `limit_s`; so calls of several threads that overlap do not put it off.

    Args:
        change: makes the change. It may enter and leave. Its error is raised by the call that made it.
    """

    def __init__(self, change: Callable[[], None], patience_s: float, limit_s: float) -> None:
        self._change = change
        self._patience_s, self._limit_s = patience_s, limit_s
        self._moved = threading.Condition()
        self._inside: dict[int, _Inside] = {}  # by thread
        self._announced: float | None = None  # when
        self._changing = False

    def announce(self) -> None:
        """The next thread that enters an empty gate makes the change."""
        with self._moved:
            self._announced = time.monotonic()

    def withdraw(self) -> bool:
        """Takes back what was announced. False: the change is made, or was; then it has ended on return."""
        with self._moved:
            while self._changing:
                self._moved.wait()
            announced, self._announced = self._announced is not None, None
            return announced

    def wait_made(self, timeout_s: float) -> bool:
        """Waits for a change that was announced. True: none is announced any more, or none was."""
        with self._moved:
            return self._moved.wait_for(lambda: self._announced is None and not self._changing, timeout_s)

    def enter(self, frame: FrameType | None = None) -> int:
        """A call begins. Returns the number for `leave`.

        Args:
            frame: runs for as long as the call. A call of this thread whose frame no longer runs has ended without
                `leave`, as Ctrl-C ends one. None: `leave` is called in any case.
        """
        return self._enter(frame, self._patience_s, self._limit_s)[0]

    def leave(self, number: int) -> None:
        """A call ends. A number that is not inside changes nothing."""
        with self._moved:
            inside = self._inside.get(number)
            if inside is None:
                return
            inside.depth -= 1
            if inside.depth == 0:
                del self._inside[number]
                self._moved.notify_all()

    def make(self, timeout_s: float) -> bool:
        """Makes an announced change now, or once the calls inside have left; calls that enter meanwhile wait. False: there
        is none, or they have not left in time, or one of them is this thread's.
        """
        with self._moved:
            if self._announced is not None:
                self._announced -= self._patience_s  # overdue
        number, made = self._enter(None, 0.0, timeout_s)
        self.leave(number)
        return made

    def _enter(self, frame: FrameType | None, patience_s: float, limit_s: float) -> tuple[int, bool]:
        number = threading.get_ident()
        with self._moved:
            inside = self._inside.get(number)
            if inside is not None and _is_running(inside.frame):
                inside.depth += 1
                return number, False
            self._inside.pop(number, None)
            changes = self._wait(patience_s, limit_s)
            self._inside[number] = _Inside(frame)
            if not changes:
                return number, False
            self._announced, self._changing = None, True
        try:
            self._change()
        except BaseException:
            self.leave(number)
            raise
        finally:
            with self._moved:
                self._changing = False
                self._moved.notify_all()
        return number, True

    def _wait(self, patience_s: float, limit_s: float) -> bool:
        """Waits while the gate is closed for this thread. True: this thread is to make the change."""
        until = None
        while True:
            if self._changing:
                self._moved.wait()
                continue
            announced, now = self._announced, time.monotonic()
            if announced is None or not self._inside:
                return announced is not None
            until = now + limit_s if until is None else until
            if now < announced + patience_s or now >= until:
                return False
            self._forget_ended_threads()
            self._moved.wait(min(until - now, _SLICE_S))

    def _forget_ended_threads(self) -> None:
        ended = [number for number, inside in self._inside.items() if inside.frame is not None]
        running = sys._current_frames()
        for number in ended:
            if number not in running:
                del self._inside[number]
