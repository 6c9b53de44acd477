# SPDX-License-Identifier: Apache-2.0
"""A Desk has the requests of one server: those that it has asked for, and those in its hands."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from arraybridge.broker.delivery import Acquired
from arraybridge.broker.services.letters import Letter
from arraybridge.broker.services.request import Key, Request
from arraybridge.errors import BrokerError

_ASIDE_MAX: Final = 1024  # requests of slow callers that a server has asked for


class Told(NamedTuple):
    """The answer of a caller to "ask"; without a request: no."""

    request: Request | None
    message: Acquired | None


class _Asked(NamedTuple):
    """A request for which the server has asked."""

    until: float  # when the caller has answered too late
    called_ns: int
    awaited: bool  # False: the server goes on meanwhile, because the caller is slow


class Desk:
    """Thread-safe: the server's loop takes what the thread brings that reads letters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[Key, _Asked] = {}
        self._held: dict[Key, weakref.ref[Request]] = {}  # not answered yet; whoever has the request may drop it
        self._dropped: SimpleQueue[tuple[Letter, int]] = SimpleQueue()  # of requests that were dropped unanswered
        self._told: SimpleQueue[Told | BrokerError] = SimpleQueue()
        self._closed = False

    def expect(self, key: Key, seconds: float, called_ns: int, awaited: bool) -> bool:
        """False: it was asked for before, or too many callers are slow."""
        with self._lock:
            full = not awaited and len(self._asked) >= _ASIDE_MAX
            if full or key in self._asked or self._held_by(key) is not None:
                return False
            self._asked[key] = _Asked(time.monotonic() + seconds, called_ns, awaited)
            return True

    def drop(self, key: Key) -> None:
        """The server does not wait for it any more."""
        with self._lock:
            self._asked.pop(key, None)

    def expected(self) -> dict[Key, float]:
        """Until when the callers that were asked may answer."""
        with self._lock:
            return {key: asked.until for key, asked in self._asked.items()}

    def awaited(self) -> int:
        """How many callers the server waits for, or have given an answer that `next` has not returned."""
        with self._lock:
            return sum(asked.awaited for asked in self._asked.values()) + self._told.qsize()

    def give(self, request: Request, message: Acquired) -> bool:
        """False: the server does not wait for it, and will not execute it."""
        with self._lock:
            asked = self._asked.pop(request.key, None)
            if self._closed or asked is None:
                return False
            request.called_ns = asked.called_ns
            self._held[request.key] = weakref.ref(
                request, functools.partial(_note_dropped, self._dropped, request.letter, request.called_ns)
            )
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

    def begin(self, request: Request) -> bool:
        """The server has it in its hands from now on. False: the service was closed, and another server gets it."""
        with self._lock:
            request.begun = not self._closed
            return request.begun

    def dropped(self) -> Iterator[tuple[Letter, int]]:
        """The letters of requests that the server dropped without an answer, each once, and when they were called."""
        while not self._dropped.empty():
            letter, called_ns = self._dropped.get()
            with self._lock:
                unanswered = self._held.pop((letter.peer, letter.number), None) is not None
            if unanswered:
                yield letter, called_ns

    def release(self, key: Key) -> None:
        """It is answered."""
        with self._lock:
            self._held.pop(key, None)

    def held(self, key: Key) -> Request | None:
        """In the hands of the server, and not answered."""
        with self._lock:
            return self._held_by(key)

    def cancel_all_of(self, caller: str | None) -> None:
        """It has ended; None: all of them."""
        with self._lock:
            requests = [self._held_by(key) for key in self._held if caller in (None, key[0])]
        for request in requests:
            if request is not None:
                request.cancel()

    def begun(self) -> list[Request]:
        """The requests that the server has in its hands, and has not answered."""
        with self._lock:
            requests = map(self._held_by, self._held)
            return [request for request in requests if request is not None and request.begun]

    def close(self) -> list[Key]:
        """Takes no more. The requests that may have been executed in part."""
        with self._lock:
            self._closed = True
            # One that was dropped had begun.
            begun = [key for key in self._held if (request := self._held_by(key)) is None or request.begun]
            self._held.clear()
            self._asked.clear()
            return begun

    def _held_by(self, key: Key) -> Request | None:
        held = self._held.get(key)
        return None if held is None else held()


def _note_dropped(dropped: SimpleQueue[tuple[Letter, int]], letter: Letter, called_ns: int, _: object) -> None:
    """Takes no lock: the garbage collector may call it anywhere."""
    dropped.put((letter, called_ns))
