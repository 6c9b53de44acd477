# SPDX-License-Identifier: Apache-2.0
"""Calls executes calls of a Broker for event loops, on threads of its own. A call that is cancelled has either not begun,
and never will, or it ends on its thread: CallCancelled has its outcome.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from arraybridge.broker.worker import Worker, waitable

T = TypeVar("T")
_THREADS_MAX: Final = 32  # further calls wait


class CallCancelled(asyncio.CancelledError):
    """The task of `aput`, `aget` or `asend` was cancelled.

    Attributes:
        outcome: a concurrent.futures.Future. `outcome.cancelled()`: nothing has happened, and nothing will. Otherwise its
            `result()` is what the call would have returned, or raises its error, when the call has ended on its thread.

    Example:
        >>> import asyncio
        >>> async def put_within(seconds):
        ...     putting = asyncio.create_task(broker.aput(np.ones(3), "frame"))
        ...     try:
        ...         return await asyncio.wait_for(putting, seconds)
        ...     except (TimeoutError, arraybridge.CallCancelled):
        ...         return None
        >>> asyncio.run(put_within(10)).name
        'frame'
    """

    def __init__(self, outcome: Future[Any]) -> None:
        super().__init__()
        self.outcome = outcome


async def awaited(call: Future[T]) -> T:
    """The result of a call that a Worker executes.

    Raises:
        CallCancelled: the task was cancelled.
    """
    try:
        await asyncio.wait({waitable(call)})
    except asyncio.CancelledError:
        call.cancel()  # nothing happens if it has begun
        raise CallCancelled(call) from None
    return call.result()


class Calls:
    """Thread-safe. Its threads are made when they are needed, and end with `stop`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._all: list[Worker] = []
        self._next = 0
        self._process = os.getpid()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """The future result of the call, on a thread that executes no other; of 32 calls at most."""
        with self._lock:
            worker = self._taken()
            future = worker.submit(call)
        future.add_done_callback(lambda _: self._give_back(worker))
        return future

    def stop(self) -> None:
        """Ends the threads after their calls. Does not wait. A forked child has no such threads."""
        if self._process != os.getpid():
            return
        with self._lock:
            workers, self._all, self._idle = self._all, [], []
        for worker in workers:
            worker.stop()

    def _taken(self) -> Worker:
        if self._idle:
            return self._idle.pop()
        if len(self._all) < _THREADS_MAX:
            self._all.append(Worker("arraybridge-call"))
            return self._all[-1]
        self._next = (self._next + 1) % len(self._all)
        return self._all[self._next]

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            if worker in self._all and worker not in self._idle:
                self._idle.append(worker)
