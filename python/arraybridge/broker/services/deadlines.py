# SPDX-License-Identifier: Apache-2.0
"""Deadlines ends the waits of calls for which no thread waits."""

from __future__ import annotations

import functools
import heapq
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from arraybridge.broker.services.call import Call


class Deadlines:
    """Thread-safe. Its thread lives from the first call that is added until no call is left.

    Args:
        expire: is called with each call whose time is over; it does nothing if the call has ended.
    """

    def __init__(self, expire: Callable[[Call], None]) -> None:
        self._expire = expire
        self._changed = threading.Condition()
        self._calls: list[tuple[float, int, Call]] = []  # by time, then by number
        self._running = False

    def add(self, call: Call) -> None:
        """A call that has no end of its wait is not added."""
        if call.due.at is None:
            return
        with self._changed:
            heapq.heappush(self._calls, (call.due.at, call.number, call))
            self._changed.notify()
            if not self._running:
                self._running = True
                threading.Thread(target=self._run, name="arraybridge-deadlines", daemon=True).start()
        call.outcome.add_done_callback(functools.partial(self._forget, call.number))

    def _forget(self, number: int, _: Future[Any]) -> None:
        with self._changed:
            self._calls = [each for each in self._calls if each[1] != number]
            heapq.heapify(self._calls)
            self._changed.notify()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            self._expire(call)

    def _next(self) -> Call | None:
        """Waits for the end of the next wait; None: no call is left."""
        with self._changed:
            while self._calls:
                left = self._calls[0][0] - time.monotonic()
                if left <= 0:
                    return heapq.heappop(self._calls)[2]
                self._changed.wait(left)
            self._running = False
            return None
