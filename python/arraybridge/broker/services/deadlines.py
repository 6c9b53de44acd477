# SPDX-License-Identifier: Apache-2.0
"""Deadlines ends the waits of calls for which no thread waits."""

from __future__ import annotations

import functools
import heapq
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from arraybridge.broker.services.call import Call

_ENDED_SHARE: Final = 4  # ends of calls that have ended are dropped, when they are so many times the others


class Deadlines:
    """Thread-safe. Its thread lives from the first call that is added until no call is left.

    Args:
        expire: is called with each call whose time is over; it does nothing if the call has ended.
    """

    def __init__(self, expire: Callable[[Call], None]) -> None:
        self._expire = expire
        self._changed = threading.Condition()
        self._calls: dict[int, Call] = {}
        self._ends: list[tuple[float, int]] = []  # a heap, by time and number; also of calls that have ended
        self._running = False

    def add(self, call: Call) -> None:
        """A call that has no end of its wait is not added."""
        if call.due.at is None:
            return
        with self._changed:
            self._calls[call.number] = call
            heapq.heappush(self._ends, (call.due.at, call.number))
            self._changed.notify()
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="arraybridge-deadlines", daemon=True).start()
        call.outcome.add_done_callback(functools.partial(self._forget, call.number))

    def _forget(self, number: int, _: Future[Any]) -> None:
        with self._changed:
            self._calls.pop(number, None)
            if len(self._ends) > _ENDED_SHARE * (len(self._calls) + 1):
                self._ends = [end for end in self._ends if end[1] in self._calls]
                heapq.heapify(self._ends)
                self._changed.notify()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            self._expire(call)

    def _next(self) -> Call | None:
        """Waits for the end of the next wait; None: no call is left."""
        with self._changed:
            while self._calls:
                at, number = self._ends[0]
                left = at - time.monotonic()
                if number in self._calls and left > 0:
                    self._changed.wait(left)
                    continue
                heapq.heappop(self._ends)
                if (over := self._calls.pop(number, None)) is not None:
                    return over
            self._ends.clear()
            self._running = False
            return None
