# SPDX-License-Identifier: Apache-2.0
"""A Request is what a server of a service executes: a caller's tree, to be answered once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from arraybridge import autograph
from arraybridge.broker.message import Message
from arraybridge.broker.sequences.streaming import Streaming
from arraybridge.broker.services import letters
from arraybridge.broker.services.letters import Letter
from arraybridge.errors import InvalidRequest

Key = tuple[str, int]  # the caller, and the request's number there
Answer = Callable[["Request", str, str, Message | None], bool]  # sends a letter of this kind; False: no caller waits


class Request(Streaming):
    """Made by `Service.requests`. It is answered once, by `reply`, `fail` or a sequence of `stream`, before the loop asks for the next one.

    Attributes:
        value: the array, or tree, of the caller, as `Channel.receive` returns it: read-only in NumPy.
        client: the name of the caller's program.
        process_id: of the caller, in the broker's namespace of processes; 0: unknown.

    Example:
        >>> import threading
        >>> def serve():    # usually another process
        ...     with broker.service("double") as service:
        ...         for request in service.requests():
        ...             request.reply(request.value * 2)
        ...             break
        >>> server = threading.Thread(target=serve)
        >>> server.start()
        >>> broker.call("double", np.arange(3), timeout=10).tolist()
        [0, 2, 4]
        >>> server.join()
    """

    def __init__(self, letter: Letter, sender: tuple[int, str], answer: Answer) -> None:
        super().__init__(letter.room)
        self.process_id, self.client = sender
        self.value: Any = None
        self.called_ns = 0  # of CLOCK_BOOTTIME
        self._answer_by = answer
        self.letter = letter
        self.begun = False
        self._due = letter.due
        self._answered = False

    def __repr__(self) -> str:
        state = "answered" if self._answered else "cancelled" if self.cancelled else "open"
        return f"<Request of {self.client!r} (process {self.process_id}), {state}>"

    @property
    def cancelled(self) -> bool:
        """True if no caller waits for the answer: its time is over, it has cancelled the call, or it has ended. A server that
        works for long looks here, and stops; an answer is dropped.
        """
        return self._cancelled or bool(self._due and time.monotonic() >= self._due)

    @property
    def answered(self) -> bool:
        """True after `reply` or `fail`."""
        return self._answered

    @property
    def key(self) -> Key:
        """Which request it is, for the service."""
        return self.letter.peer, self.letter.number

    def left(self) -> float | None:
        """Seconds until the caller's time is over; None: no limit."""
        return max(0.0, self._due - time.monotonic()) if self._due else None

    def reply(self, result: Any) -> bool:
        """Answers with an array, or a tree as in `Channel.send`. Copies what that copies.

        Returns:
            False: the caller waits no longer; the result was dropped.

        Raises:
            InvalidRequest: it was answered. UnsupportedArray, UnsupportedDtype: no framework could read the result; OutOfMemory,
            BrokerTimeout: no room for it. The request is open then.
        """
        self._check_open()
        return self._answer(letters.ANSWER, "", Message.of(result, None))

    def fail(self, why: str) -> bool:
        """Answers that there is no result: the caller gets RequestFailed with this text.

        Returns:
            False: the caller waits no longer.

        Raises:
            InvalidRequest: it was answered, or `why` is not a text.
        """
        self._check_open()
        if not isinstance(why, str) or not why:
            raise InvalidRequest(f"fail takes a text that tells the caller why there is no result, not {why!r}")
        return self._answer(letters.FAILED, why[:_WHY_MAX], None)

    def _check_open(self) -> None:
        if self._answered and not self._refused:
            raise InvalidRequest("this request was answered: each is answered once")

    def _answer(self, kind: str, text: str, content: Message | None) -> bool:
        if self._refused:
            return False
        reached = self._answer_by(self, kind, text, content)
        self._answered = kind != letters.ITEM
        return reached


_WHY_MAX = 4096  # characters


autograph.mark_module(__name__)
