# SPDX-License-Identifier: Apache-2.0
"""Streaming is the part of a Request that answers with a sequence of items."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any

from arraybridge import autograph
from arraybridge.broker.message import Message
from arraybridge.broker.services import letters


class Streaming(ABC):
    """The server's loop sends; the thread that reads letters says `more` and `cancel`.

    Args:
        room: how many items the caller takes before it says more; 0: it takes one answer alone.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._takes_sequence = room > 0
        self._streamed = False
        self._refused = False  # the caller was told that it takes one answer alone
        self._changed = threading.Condition()
        self._cancelled = False

    @property
    @abstractmethod
    def cancelled(self) -> bool:
        """True if no caller waits."""

    @abstractmethod
    def left(self) -> float | None:
        """Seconds until the caller's time is over; None: no limit."""

    @abstractmethod
    def fail(self, why: str) -> bool:
        """Answers that there is no result."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raises InvalidRequest: it was answered."""

    @abstractmethod
    def _answer(self, kind: str, text: str, content: Message | None) -> bool:
        """Sends a letter to the caller; False: it waits no longer."""

    def stream(self, item: Any) -> bool:
        """Sends one item of the answer, an array or a tree as in `reply`. The sequence ends with `reply`, which sends its last
        item, with `end`, or when the loop asks for its next request.

        Waits while the caller, which passes `stream=True`, has eight items that it has not taken.

        Returns:
            False: the caller waits no longer, and the item was dropped: stop. Also if the caller did not pass `stream=True`;
            it gets RequestFailed.

        Raises:
            As `reply`.
        """
        self._check_open()
        content = Message.of(item, None)
        if not self._takes_sequence:
            return self._refuse()
        if not self._waited_for_room():
            return False
        reached = self._answer(letters.ITEM, "", content)
        self._streamed = True
        with self._changed:
            self._room -= 1
        return reached

    def end(self) -> bool:
        """Ends the sequence without a further item; a sequence may be empty.

        Returns:
            False: the caller waits no longer.

        Raises:
            InvalidRequest: it was answered.
        """
        self._check_open()
        return self._answer(letters.END, "", None) if self._takes_sequence else self._refuse()

    def leave(self) -> None:
        """The server's loop goes on without it. For the service."""
        if self._streamed:
            self.end()
        else:
            self.fail("the server asked for its next request without an answer to this one")

    def more(self, room: int) -> None:
        """The caller takes so many items more. For the service."""
        with self._changed:
            self._room += room
            self._changed.notify()

    def cancel(self) -> None:
        """No caller waits any more. For the service."""
        with self._changed:
            self._cancelled = True
            self._changed.notify()

    def _waited_for_room(self) -> bool:
        """False: the caller waits no longer."""
        with self._changed:
            self._changed.wait_for(lambda: self._room > 0 or self._cancelled, self.left())
        return not self.cancelled

    def _refuse(self) -> bool:
        if not self._refused:
            self.fail("it answers with a sequence of items: pass stream=True to Broker.call")
            self._refused = True
            self.cancel()
        return False


autograph.mark_module(__name__)
