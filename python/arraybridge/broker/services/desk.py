# SPDX-License-Identifier: Apache-2.0
"""A Desk has the requests of one server: those that it has asked for, and those in its hands."""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import NamedTuple

from arraybridge.broker.delivery import Acquired
from arraybridge.broker.services.request import Key, Request
from arraybridge.errors import BrokerError


class Told(NamedTuple):
    """The answer of a caller to "ask"; without a request: no."""

    request: Request | None
    message: Acquired | None


class Desk:
    """Thread-safe: the server's loop takes what the thread brings that reads letters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[Key, tuple[float, int]] = {}  # until when their callers may answer, and when they called
        self._held: dict[Key, Request] = {}  # not answered yet
        self._told: SimpleQueue[Told | BrokerError] = SimpleQueue()
        self._closed = False

    def expect(self, key: Key, seconds: float, called_ns: int) -> bool:
        """False: it was asked for before."""
        with self._lock:
            if key in self._asked or key in self._held:
                return False
            self._asked[key] = time.monotonic() + seconds, called_ns
            return True

    def drop(self, key: Key) -> None:
        """The server does not wait for it any more."""
        with self._lock:
            self._asked.pop(key, None)

    def expected(self) -> dict[Key, float]:
        with self._lock:
            return {key: until for key, (until, _) in self._asked.items()}

    def awaited(self) -> int:
        """How many callers were asked whose answer `next` has not returned."""
        with self._lock:
            return len(self._asked) + self._told.qsize()

    def give(self, request: Request, message: Acquired) -> bool:
        """False: the server does not wait for it, and will not execute it."""
        with self._lock:
            asked = self._asked.pop(request.key, None)
            if self._closed or asked is None:
                return False
            request.called_ns = asked[1]
            self._held[request.key] = request
            self._told.put(Told(request, message))
            return True

    def refuse(self, key: Key) -> None:
        with self._lock:
            if self._asked.pop(key, None) is not None:
                self._told.put(Told(None, None))

    def fail(self, why: BrokerError) -> None:
        """The server gets nothing any more."""
        self._told.put(why)
        self.cancel_all_of(None)

    def next(self, seconds: float) -> Told | None:
        """None: no caller has answered within these seconds.

        Raises:
            The error of `fail`.
        """
        try:
            told = self._told.get(timeout=seconds)
        except Empty:
            return None
        if isinstance(told, BrokerError):
            self._told.put(told)
            raise told
        return told

    def release(self, key: Key) -> None:
        """It is answered."""
        with self._lock:
            self._held.pop(key, None)

    def held(self, key: Key) -> Request | None:
        """In the hands of the server, and not answered."""
        with self._lock:
            return self._held.get(key)

    def cancel_all_of(self, caller: str | None) -> None:
        """It has ended; None: all of them."""
        with self._lock:
            requests = [request for key, request in self._held.items() if caller in (None, key[0])]
        for request in requests:
            request.cancel()

    def begun(self) -> list[Request]:
        """The requests that the server has in its hands, and has not answered."""
        with self._lock:
            return [request for request in self._held.values() if request.begun]

    def close(self) -> list[Key]:
        """Takes no more. The requests that may have been executed in part."""
        with self._lock:
            self._closed = True
            begun = [key for key, request in self._held.items() if request.begun]
            self._held.clear()
            self._asked.clear()
            return begun
