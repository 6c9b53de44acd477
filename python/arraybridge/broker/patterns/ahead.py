# SPDX-License-Identifier: Apache-2.0
"""Ahead has the waiting calls of a channel or a watch that were made ahead of their callers: for cancelled tasks, whose
result the next caller gets, and for selectors, which need a descriptor that is readable when a call would not wait.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

from arraybridge.broker.worker import Worker, waitable

T = TypeVar("T")


class Ahead(Generic[T]):
    """Thread-safe. Its thread starts with the first call; `stop` ends it after the calls that were made before. A forked
    child makes a new one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._calls: deque[Future[T]] = deque()  # oldest first
        self._worker: Worker | None = None
        self._stopped = False
        self._process = os.getpid()
        self._event = -1  # readable if a call is done, or this is stopped
        self._readable = False
        self._next: Callable[[], T] | None = None  # is called ahead
        self._noted = functools.partial(_refreshed, weakref.ref(self))

    def __len__(self) -> int:
        return len(self._calls)

    def __getitem__(self, index: int) -> Future[T]:
        return self._calls[index]

    def done(self, call: Callable[[], T], left: float | None) -> Future[T] | None:
        """The oldest call, or a new one, when it is done; None: it was not within `left` seconds, and is kept."""
        coming = self._taken(call)
        ended = False
        try:
            ended = coming.done() or bool(wait([coming], left).done)
        finally:
            self._give_back(coming, ended)
        return coming if ended else None

    async def adone(self, call: Callable[[], T], left: float | None) -> Future[T] | None:
        """`done` for an event loop."""
        coming = self._taken(call)
        ended = False
        try:
            ended = bool((await asyncio.wait({waitable(coming)}, timeout=left))[0])
        finally:
            self._give_back(coming, ended)
        return coming if ended else None

    def fileno(self, call: Callable[[], T]) -> int:
        """A descriptor that is readable while `done(call, 0)` would return; from now on one call is made ahead."""
        with self._lock:
            if self._event < 0:
                self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                weakref.finalize(self, os.close, self._event).atexit = False  # threads may still write to it
            self._next = self._next or call
        self._refresh()
        return self._event

    def stop(self) -> None:
        """No call is made any more. Does not wait. Idempotent."""
        if self._process != os.getpid():
            return  # the parent's
        with self._lock:
            self._stopped = True
            worker, self._worker, self._next = self._worker, None, None
        if worker is not None:
            worker.stop()
        self._refresh()

    def _taken(self, call: Callable[[], T]) -> Future[T]:
        with self._lock:
            if self._next is not None:
                self._next = call  # the next call ahead is made as this caller wishes
            if self._calls:
                return self._calls.popleft()
            made = self._submitted(call)
        made.add_done_callback(self._noted)
        return made

    def _submitted(self, call: Callable[[], T]) -> Future[T]:
        if self._worker is None:
            self._worker = Worker(self._name)
        return self._worker.submit(call)

    def _give_back(self, coming: Future[T], ended: bool) -> None:
        if not ended:
            with self._lock:
                self._calls.appendleft(coming)
        self._refresh()

    def _refresh(self) -> None:
        """Makes the next call ahead, and the descriptor readable or not."""
        made = None
        with self._lock:
            if self._event < 0:
                return
            if self._next is not None and not self._calls:
                made = self._submitted(self._next)
                self._calls.append(made)
            readable = self._stopped or any(each.done() for each in self._calls)
            if readable != self._readable:
                self._readable = readable
                if readable:
                    os.eventfd_write(self._event, 1)
                else:
                    os.eventfd_read(self._event)
        if made is not None:
            made.add_done_callback(self._noted)


def _refreshed(of: weakref.ref[Ahead[Any]], _: Future[Any]) -> None:
    ahead = of()
    if ahead is not None:
        ahead._refresh()
