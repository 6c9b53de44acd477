# SPDX-License-Identifier: Apache-2.0
"""Peers are the callers that a server knows: to each one it sends answers, until this caller has ended."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from arraybridge.broker.services.letters import Letter
from arraybridge.broker.services.mailbox import Mailbox, channel_of

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

SLOW_S: Final = 60.0  # how long a caller that did not answer in time is not waited for
_UNSENT_MAX: Final = 256  # letters that wait for room in one caller's box


class Peers:
    """Thread-safe."""

    def __init__(self, broker: Broker, service: str) -> None:
        self._broker = broker
        self._service = service
        self._lock = threading.Lock()
        self._answers: dict[str, Mailbox] = {}
        self._slow: dict[str, float] = {}  # callers that did not answer in time: until when nobody waits for them
        self._unsent: dict[str, deque[Letter]] = {}  # oldest first

    def answers_to(self, caller: str) -> Mailbox | None:
        """None: this caller has ended.

        Raises:
            Errors of `Channel.open`.
        """
        with self._lock:
            known = self._answers.get(caller) or Mailbox.to(self._broker, channel_of(self._service, "answers", caller))
            if known is not None:
                self._answers[caller] = known
            return known

    def lapsed(self, caller: str) -> None:
        """It lives, and did not answer, or take answers, in time."""
        with self._lock:
            if caller in self._answers:
                self._slow[caller] = time.monotonic() + SLOW_S

    def post_later(self, caller: str, letter: Letter) -> None:
        """Sends it when `send_unsent` finds room in the caller's box. Beyond the most letters the oldest is dropped."""
        with self._lock:
            if caller in self._answers:
                self._unsent.setdefault(caller, deque(maxlen=_UNSENT_MAX)).append(letter)

    def send_unsent(self) -> bool:
        """Sends what has room. True: some letters still wait."""
        with self._lock:
            for caller, waiting in list(self._unsent.items()):
                while waiting and self._answers[caller].try_post(waiting[0]):
                    waiting.popleft()
                if not waiting:
                    del self._unsent[caller]
            return bool(self._unsent)

    def is_slow(self, caller: str) -> bool:
        """True if it did not answer in time lately: other callers are not to wait for it."""
        with self._lock:
            return self._slow.get(caller, 0.0) > time.monotonic()

    def is_gone(self, caller: str) -> bool:
        """True if the caller has ended; forgets it then."""
        with self._lock:
            known = self._answers.get(caller)
        if known is not None and not known.owner_is_gone():
            return False
        self.forget(caller)
        return True

    def forget(self, caller: str) -> None:
        """Sends nothing to it any more."""
        with self._lock:
            known = self._answers.pop(caller, None)
            self._slow.pop(caller, None)
            self._unsent.pop(caller, None)
        if known is not None:
            known.discard()

    def callers(self) -> list[str]:
        with self._lock:
            return list(self._answers)

    def part(self, letters: dict[str, Letter]) -> None:
        """Ends, with a last letter to each caller."""
        for caller in self.callers():
            with self._lock:
                known = self._answers.pop(caller, None)
                self._unsent.pop(caller, None)
            if known is not None:
                known.try_post(letters[caller]) if caller in letters else None
                known.abandon()
