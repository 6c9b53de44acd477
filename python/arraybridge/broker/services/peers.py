# SPDX-License-Identifier: Apache-2.0
"""Peers are the callers that a server knows: to each one it sends answers, until this caller has ended."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from arraybridge.broker.services.letters import Letter
from arraybridge.broker.services.mailbox import Mailbox, channel_of

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker


class Peers:
    """Thread-safe."""

    def __init__(self, broker: Broker, service: str) -> None:
        self._broker = broker
        self._service = service
        self._lock = threading.Lock()
        self._answers: dict[str, Mailbox] = {}

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
            if known is not None:
                known.try_post(letters[caller]) if caller in letters else None
                known.abandon()
