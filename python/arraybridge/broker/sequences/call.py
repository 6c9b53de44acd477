# SPDX-License-Identifier: Apache-2.0
"""A SequenceCall is a Call whose answer has several items."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import Any, Final

from arraybridge.broker.delivery import Acquired
from arraybridge.broker.services import letters
from arraybridge.broker.services.call import Call
from arraybridge.broker.services.letters import Letter

ROOM: Final = 8  # items that are on their way, or wait for the caller's loop


class SequenceCall(Call):
    """One thread brings items and the outcome, another one takes them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._moving = threading.Lock()
        self._items: deque[Acquired] = deque()
        self._coming: Future[Acquired | None] | None = None
        self._taken = 0

    def letter(self, kind: str, caller: str) -> Letter:
        return super().letter(kind, caller)._replace(room=ROOM)

    def item(self, message: Acquired) -> None:
        self.retry = False  # the next server would send this item again
        self._items.append(message)
        self._move()

    def answered(self, answer: Acquired, kind: str = letters.ANSWER) -> None:
        if kind == letters.ANSWER:
            self._items.append(answer)
        super().answered(answer)
        self._move()

    def failed(self, error: BaseException) -> None:
        super().failed(error)
        self._move()

    def coming(self) -> Future[Acquired | None]:
        """The next item; None: there is no further one. The same future until `take`."""
        with self._moving:
            self._coming = self._coming or Future()
            coming = self._coming
        self._move()
        return coming

    def take(self) -> int:
        """The loop has got the item of `coming`. How many further items the server may send from now on."""
        self._coming = None
        self._taken += 1
        return ROOM // 2 if self._taken % (ROOM // 2) == 0 else 0

    def _move(self) -> None:
        with self._moving:
            if self._coming is None or self._coming.done():
                return
            if self._items:
                self._coming.set_result(self._items.popleft())
            elif self.outcome.done():
                error = self.outcome.exception()
                self._coming.set_result(None) if error is None else self._coming.set_exception(error)
