# SPDX-License-Identifier: Apache-2.0
"""A Service is one server of a name: it takes requests of callers, and answers them."""

from __future__ import annotations

import os
import threading
import time
import uuid
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from arraybridge import _core, autograph
from arraybridge.broker.batches.batch import Batch
from arraybridge.broker.delivery import Acquired, Wanted
from arraybridge.broker.due import Due
from arraybridge.broker.message import Message
from arraybridge.broker.patterns.receiver import ReceiverWishes
from arraybridge.broker.services import letters
from arraybridge.broker.services.desk import Desk
from arraybridge.broker.services.letters import Letter
from arraybridge.broker.services.mailbox import CAPACITY, Mailbox, channel_of, next_of
from arraybridge.broker.services.peers import Peers
from arraybridge.broker.services.reading import read_letters
from arraybridge.broker.services.request import Request
from arraybridge.broker.services.suspicion import Suspicion
from arraybridge.broker.services.terms import Terms
from arraybridge.errors import BrokerError, BrokerTimeout, ChannelClosed, InvalidRequest, PeerGone

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

_LOOK_S: Final = 0.1  # how often a server looks whether the caller lives that it has asked
_ASK_S: Final = 5.0  # how long it waits for a caller that lives and does not answer: it was stopped, or has no memory


class Service:
    """Made by `Broker.service`. `requests` is called by one thread; other threads, and other processes, make a Service of their
    own. `close`, and the end of a `with` block, end it: requests that are not answered get ServerGone.

    Example:
        >>> with broker.service("double", queue=8) as service:
        ...     service.name
        'double'
    """

    def __init__(self, broker: Broker, name: str, terms: Terms) -> None:
        self._broker = broker
        self._name: Final = name
        self._terms: Final = terms
        self._id: Final = uuid.uuid4().hex
        self._process = os.getpid()
        self._peers = Peers(broker, name)
        self._desk = Desk()
        self._reading, self._private = False, False
        self._suspicion = Suspicion()
        self._closed = False
        self._boxes: tuple[Mailbox, Mailbox, Mailbox] | None = None

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

    def requests(self, framework: str = "numpy", *, timeout: float | None = None, **wishes: Unpack[ReceiverWishes]) -> Iterator[Any]:
        """The requests, as they come: each a Request, or with `batch` a Batch of at least one.

        A request that is not answered when the loop asks for the next one fails, and so does one whose arrays cannot take this form.

        Args:
            framework, wishes: as in `Channel.receive`, for `Request.value`.
            timeout: seconds to wait for a request; None: no limit. Ctrl-C ends it, and nothing is lost.

        Raises:
            BrokerTimeout: no request in time. ChannelClosed: it was closed here. BrokerUnavailable: the broker has ended.
            Errors of `open`.

        Example:
            >>> with broker.service("double") as service:
            ...     for request in service.requests("torch", timeout=0.01):
            ...         request.reply(request.value * 2)
            Traceback (most recent call last):
            arraybridge.errors.BrokerTimeout: ...
        """
        wanted = Wanted.of_share(framework, **wishes)
        self.open()
        self._read(wanted.private)
        while True:
            taken = self._batch(wanted, Due.after(timeout))
            given = taken[0] if self._terms.batch is None else Batch(taken)
            del taken  # while the next request is awaited, this frame holds no arrays
            yield given
            del given
            self._fail_unanswered()

    def close(self) -> None:
        """Ends it, in order: requests that wait stay for other servers. Idempotent."""
        boxes, self._boxes = self._boxes, None
        self._closed = True
        if boxes is None or self._process != os.getpid():
            return
        requests, presence, tickets = boxes
        self._desk.cancel_all_of(None)
        begun = self._desk.close()
        tickets.close()
        requests.close()
        held: dict[str, list[int]] = {caller: [] for caller in self._peers.callers()}
        for caller, number in begun:
            held.setdefault(caller, []).append(number)
        self._peers.part({caller: Letter(letters.BYE, self._id, held=tuple(some)) for caller, some in held.items()})
        presence.abandon()  # each caller is told that a ticket may be lost

    def _fail_unanswered(self) -> None:
        for request in self._desk.begun():
            request.leave()

    def _batch(self, wanted: Wanted, due: Due) -> list[Request]:
        """At least one request; more while there is room and time."""
        most, taken = self._terms.batch or 1, self._first(wanted, due)
        due = Due.after(self._terms.within)
        while len(taken) + self._desk.awaited() < most and self._ask_for_next(due):
            continue
        while self._desk.awaited():
            taken += self._told(wanted)
        return taken

    def _first(self, wanted: Wanted, due: Due) -> list[Request]:
        while True:
            if not self._desk.awaited() and not self._ask_for_next(due):
                what = f"no request for service {self._name!r} of namespace {self._broker.namespace!r} within {due.seconds or 0:g} s"
                raise BrokerTimeout(f"{what}: call it in another process, or pass a larger timeout=", 4, "NO_REQUEST")
            taken = self._told(wanted)
            if taken:
                return taken

    def _ask_for_next(self, due: Due) -> bool:
        """Takes a ticket, and asks its caller for the request. False: there was none in time."""
        if self._boxes is None:
            raise ChannelClosed(f"service {self._name!r} was closed here", reason="SERVICE_CLOSED")
        tickets = self._boxes[2].channel
        while True:
            try:
                message = next_of(weakref.ref(tickets), False, due.left())
            except (ChannelClosed, PeerGone) as told:  # of callers, which come and go
                if told.reason == "CHANNEL_NOT_OPEN":
                    raise
                continue
            if message is None:
                return False
            ticket = letters.read(message[0].metadata)
            if ticket is not None and ticket.kind == letters.TICKET and self._ask(ticket):
                return True

    def _ask(self, ticket: Letter) -> bool:
        """False: the caller has ended, or its time is over."""
        key = ticket.peer, ticket.number
        if ticket.due and time.monotonic() >= ticket.due:
            return False
        answers = self._peers.answers_to(ticket.peer)
        if answers is None or not self._desk.expect(key, _ASK_S):
            return False
        try:
            answers.post(Letter(letters.ASK, self._id, ticket.number, retry=self._terms.retry), due=Due.after(_ASK_S))
        except (PeerGone, ChannelClosed, BrokerTimeout):
            self._desk.drop(key)
            self._lose(ticket.peer)
            return False
        return True

    def _told(self, wanted: Wanted) -> list[Request]:
        """The request of the caller that answers next; none, if it says no."""
        told = self._desk.next(_LOOK_S)
        if told is None:
            for key, until in self._desk.expected().items():
                if self._peers.is_gone(key[0]) or time.monotonic() >= until:
                    self._desk.drop(key)
            return []
        if told.request is None or told.message is None:
            return []
        return self._begun(told.request, told.message, wanted)

    def _begun(self, request: Request, message: Acquired, wanted: Wanted) -> list[Request]:
        if request.cancelled:  # its deadline is over, or its caller is gone
            self._desk.release(request.key)
            return []
        try:
            request.begin(self._broker._delivery.granted(message, wanted, False))
        except BrokerError as error:
            request.fail(f"the server could not read it: {error.message}")
            return []
        return [request]

    def _answer(self, request: Request, kind: str, text: str, content: Message | None) -> bool:
        """Sends the answer, also of a cancelled request: its caller may want to know what became of it."""
        caller, number = request.key
        left = request.left()
        waits = not request.cancelled
        answers = self._peers.answers_to(caller) if left != 0 else None
        try:
            if answers is not None:
                letter = Letter(kind, self._id, number, text=text)
                answers.post(letter, content, Due.after(self._broker.timeout_s if left is None else left))
        except (PeerGone, ChannelClosed):
            self._lose(caller)
            waits = False
        except BrokerTimeout:
            if left is None:
                raise
            waits = False
        if kind != letters.ITEM:
            self._desk.release(request.key)
        return waits and answers is not None

    @property
    def ended(self) -> bool:
        return self._closed

    # Of the thread that reads letters, too:

    def _wishes(self) -> tuple[bool, float | None]:
        """How the next request is mapped, and for how many seconds it is awaited before callers are examined again."""
        return self._private, self._suspicion.pause()

    def _fail(self, why: BrokerError) -> None:
        """The server gets nothing any more."""
        self._desk.fail(why)

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
            answers = self._peers.answers_to(letter.peer)
            if answers is not None:
                answers.try_post(Letter(letters.BACK, self._id, letter.number))

    def _examine(self) -> None:
        """Finds callers that have ended, if a notice has said that there is one."""
        if self._suspicion.due():
            for caller in self._peers.callers():
                if self._peers.is_gone(caller):
                    self._suspicion.confirmed()
                    self._desk.cancel_all_of(caller)


def _end(end: _core.ChannelEnd) -> None:
    """Of a Service that was dropped: its thread returns."""
    try:
        end.close(False)
    except _core.StatusError:
        return


autograph.mark_module(__name__)
