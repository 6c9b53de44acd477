# SPDX-License-Identifier: Apache-2.0
"""A Worker is a thread that executes waiting calls for an event loop, in order. Other than an executor of `concurrent.futures`
it is not joined when the interpreter ends: a call that waits for another process may never end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Thread-safe. The thread starts with the first call, or with `start`; then `submit` takes no lock, so that finalizers may call it."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._unstarted = [threading.Thread(target=_run, args=(self._calls,), name=name, daemon=True)]

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Returns the future result, or exception, of the call."""
        future: Future[T] = Future()
        self._calls.put((future, call))
        self.start()
        return future

    def start(self) -> None:
        if self._unstarted:
            with contextlib.suppress(IndexError):  # one of several threads gets it
                self._unstarted.pop().start()

    def stop(self) -> None:
        """Ends the thread after the calls that were submitted before. Does not wait."""
        self._calls.put(None)


def waitable(call: Future[Any]) -> asyncio.Future[Any]:
    """A future that is done when the call is. The exception stays in the call, so this future need not be retrieved."""
    future = asyncio.wrap_future(call)
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


def _run(calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]) -> None:
    while (next_call := calls.get()) is not None:
        future, call = next_call
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(call())
        except BaseException as error:
            future.set_exception(error)
        del next_call, future, call  # releases them before it waits for the next call
