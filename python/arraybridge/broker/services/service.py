# SPDX-License-Identifier: Apache-2.0
"""A Service is one server of a name: it takes requests of callers, and answers them."""

from __future__ import annotations

import math
import os
import threading
import time
import uuid
import weakref
from typing import TYPE_CHECKING, Any, Final, Self

from arraybridge import _core, autograph
from arraybridge.broker.delivery import Acquired
from arraybridge.broker.due import Due
from arraybridge.broker.figures.figures import Figures
from arraybridge.broker.message import Message
from arraybridge.broker.services import letters
from arraybridge.broker.services.letters import Letter
from arraybridge.broker.services.mailbox import CAPACITY, Mailbox, channel_of
from arraybridge.broker.services.peers import SLOW_S
from arraybridge.broker.services.reading import read_letters
from arraybridge.broker.services.request import Key, Request
from arraybridge.broker.services.suspicion import Suspicion
from arraybridge.broker.services.terms import Terms
from arraybridge.broker.taking.taking import Taking
from arraybridge.errors import BrokerTimeout, ChannelClosed, InvalidRequest, PeerGone

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

_LOOK_S: Final = 0.02  # how often it looks whether callers have room again
_SLOW_REPLY_S: Final = 1.0  # how long an answer waits for room in the box of a caller that is slow


class Service(Taking):
    """Made by `Broker.service`. `requests` is called by one thread; other threads, and other processes, make a Service of their
    own. `close`, and the end of a `with` block, end it: requests that are not answered get ServerGone.

    Example:
        >>> with broker.service("double", queue=8) as service:
        ...     service.name
        'double'
    """

    def __init__(self, broker: Broker, name: str, terms: Terms) -> None:
        super().__init__(broker, name, terms)
        self._id: Final = uuid.uuid4().hex
        self._fail = self._desk.fail
        self._figures = Figures(broker, name, self._id)
        self._process = os.getpid()
        self._reading, self._private = False, False
        self._suspicion = Suspicion()

    @property
    def name(self) -> str:
        """The name that callers pass."""
        return self._name

    def __repr__(self) -> str:
        state = "closed" if self._closed else "not open" if self._boxes is None else "open"
        return f"<Service {self._name!r} of namespace {self._broker.namespace!r}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Service cannot be pickled: pass its name, and call Broker.service in the other process")

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Becomes a server at once, not with the first request. Idempotent.

        Raises:
            ChannelClosed: it was closed. InvalidRequest: another server states another `queue`. Errors of `Channel.open`.
        """
        if self._closed:
            raise ChannelClosed(f"service {self._name!r} was closed here: make a new one with Broker.service", reason="SERVICE_CLOSED")
        if self._process != os.getpid():
            raise InvalidRequest(f"service {self._name!r} is of the parent process: make a new one with Broker.service after the fork")
        if self._boxes is None:
            requests = Mailbox(self._broker, channel_of(self._name, "requests", self._id), "receiver", CAPACITY)
            presence = Mailbox(self._broker, channel_of(self._name, "presence"), "sender", mode="broadcast")
            # Last: a ticket that is lost with this process has callers who are told so.
            tickets = self._tickets()
            self._boxes = requests, presence, tickets
        return self

    def _tickets(self) -> Mailbox:
        try:
            return Mailbox(self._broker, channel_of(self._name, "tickets"), "receiver", self._terms.queue)
        except InvalidRequest as refused:
            if refused.reason != "CHANNEL_CAPACITY":
                raise
            what = f"queue={self._terms.queue} of service {self._name!r} is refused: {refused.message.partition('; ')[0]}"
            remedy = "state one queue= in all servers of the name, at most limits.channel_capacity_max of the broker"
            raise InvalidRequest(f"{what}; {remedy}", refused.code, "QUEUE") from None

    def _read(self, private: bool) -> None:
        """Begins to read what callers answer. `private`: their arrays are mapped copy-on-write."""
        self._private = private
        if self._boxes is None or self._reading:
            return
        self._reading = True
        requests = self._boxes[0]
        weakref.finalize(self, _end, requests.end)
        of = weakref.ref(self), weakref.ref(requests.channel)
        threading.Thread(target=read_letters, args=of, name="arraybridge-requests", daemon=True).start()

    def close(self) -> None:
        """Ends it, in order: requests that wait stay for other servers. Idempotent."""
        boxes, self._boxes = self._boxes, None
        self._closed = True
        if boxes is None or self._process != os.getpid():
            return
        requests, presence, tickets = boxes
        self._ahead.stop()
        self._desk.cancel_all_of(None)
        begun = self._desk.close()
        tickets.close()
        requests.close()
        held: dict[str, list[int]] = {caller: [] for caller in self._peers.callers()}
        for caller, number in begun:
            held.setdefault(caller, []).append(number)
        self._peers.part({caller: Letter(letters.BYE, self._id, held=tuple(some)) for caller, some in held.items()})
        self._figures.withdraw()
        presence.abandon()  # each caller is told that a ticket may be lost

    def _ask(self, ticket: Letter, called_ns: int) -> bool:
        """False: the caller has ended, or its time is over. One that is slow is asked, and not waited for."""
        key = ticket.peer, ticket.number
        if ticket.due and time.monotonic() >= ticket.due:
            return False
        answers, slow = self._peers.answers_to(ticket.peer), self._peers.is_slow(ticket.peer)
        if answers is None or not self._desk.expect(key, SLOW_S if slow else letters.PATIENCE_S, called_ns, not slow):
            return False
        letter = Letter(letters.ASK, self._id, ticket.number, retry=self._terms.retry)
        if slow:
            self._peers.post_later(ticket.peer, letter)
            return True
        try:
            answers.post(letter, due=Due.after(letters.PATIENCE_S))
        except BrokerTimeout:  # its caller sends the ticket again when it reads again
            self._lapse(key)
            return False
        except (PeerGone, ChannelClosed):
            self._desk.drop(key)
            self._lose(ticket.peer)
            return False
        return True

    def _answer(self, request: Request, kind: str, text: str, content: Message | None) -> bool:
        """Sends the answer, also of a cancelled request: its caller may want to know what became of it."""
        caller, number = request.key
        left = request.left()
        waits = not request.cancelled
        answers = self._peers.answers_to(caller) if left != 0 else None
        try:
            if answers is not None:
                letter = Letter(kind, self._id, number, text=text)
                answers.post(letter, content, self._due_of(request, left))
        except (PeerGone, ChannelClosed):
            self._lose(caller)
            waits = False
        except BrokerTimeout as late:
            if left is None:
                if late.reason != "CHANNEL_FULL":
                    raise
                self._peers.lapsed(caller)
                self._peers.post_later(caller, Letter(letters.FAILED, self._id, number, text=_NOT_TAKEN))
            waits = False
        if kind != letters.ITEM:
            self._desk.release(request.key)
            self._figures.note(request.called_ns, kind == letters.FAILED)
        return waits and answers is not None

    def _due_of(self, request: Request, left: float | None) -> Due:
        """How long an answer waits for room in the caller's box, and for memory."""
        slow = self._peers.is_slow(request.key[0])
        return Due.after(min(self._broker.timeout_s, _SLOW_REPLY_S if slow else math.inf) if left is None else left)

    # Of the thread that reads letters, too:

    def _wishes(self) -> tuple[bool, float | None]:
        """How the next request is mapped, and for how many seconds it is awaited before callers are examined again."""
        return self._private, _LOOK_S if self._peers.send_unsent() else self._suspicion.pause()

    def _lose(self, caller: str) -> None:
        """It has ended."""
        self._peers.forget(caller)
        self._desk.cancel_all_of(caller)

    def _received(self, message: Acquired | None) -> None:
        letter = None if message is None else letters.read(message[0].metadata)
        if message is None or letter is None:
            return
        key = letter.peer, letter.number
        if letter.kind in (letters.CANCEL, letters.MORE):
            if (held := self._desk.held(key)) is not None:
                held.cancel() if letter.kind == letters.CANCEL else held.more(letter.room)
        elif letter.kind == letters.NO:
            self._desk.refuse(key)
        elif letter.kind == letters.GO:
            self._given(letter, message)

    def _given(self, letter: Letter, message: Acquired) -> None:
        _, _, _, process_id, client = message[0].sent or (0, 0, 0, 0, "")
        if not self._desk.give(Request(letter, (process_id, client), self._answer), message):
            answers, back = self._peers.answers_to(letter.peer), Letter(letters.BACK, self._id, letter.number)
            if answers is not None and not answers.try_post(back):
                self._peers.post_later(letter.peer, back)

    def _lapse(self, key: Key) -> None:
        """Its caller lives, and has not answered in time."""
        self._desk.drop(key)
        self._peers.lapsed(key[0])

    def _fail_dropped(self) -> None:
        """Requests that nobody can answer any more fail."""
        for letter, called_ns in self._desk.dropped():
            request = Request(letter, (0, ""), self._answer)
            request.called_ns = called_ns
            request.fail("the server dropped the request without an answer")

    def _examine(self) -> None:
        """Finds callers that have ended, if a notice has said that there is one."""
        if self._suspicion.due():
            for caller in self._peers.callers():
                if self._peers.is_gone(caller):
                    self._suspicion.confirmed()
                    self._desk.cancel_all_of(caller)


_NOT_TAKEN: Final = "the caller took no answers for too long, and this one was dropped"


def _end(end: _core.ChannelEnd) -> None:
    """Of a Service that was dropped: its thread returns."""
    try:
        end.close(False)
    except _core.StatusError:
        return


autograph.mark_module(__name__)
