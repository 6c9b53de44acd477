# SPDX-License-Identifier: Apache-2.0
"""Taking is the part of a Service that takes requests."""

from __future__ import annotations

import functools
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from arraybridge import _core, autograph
from arraybridge.broker.batches.batch import Batch
from arraybridge.broker.delivery import Wanted
from arraybridge.broker.due import NEVER, Due
from arraybridge.broker.patterns.ahead import Ahead
from arraybridge.broker.patterns.receiver import ReceiverWishes
from arraybridge.broker.services import letters
from arraybridge.broker.services.desk import Desk, Told
from arraybridge.broker.services.letters import Letter
from arraybridge.broker.services.mailbox import Mailbox, next_of
from arraybridge.broker.services.peers import Peers
from arraybridge.broker.services.request import Key, Request
from arraybridge.broker.services.terms import Terms
from arraybridge.errors import BrokerError, BrokerTimeout, ChannelClosed, PeerGone

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

_LOOK_S: Final = 0.1  # how often a server looks whether the callers live that it has asked, and whether those that are slow have answered


class Taking(ABC):
    """One thread takes, and with `fileno` one more takes ahead of it."""

    def __init__(self, broker: Broker, name: str, terms: Terms) -> None:
        self._broker = broker
        self._name: Final = name
        self._terms: Final = terms
        self._peers = Peers(broker, name)
        self._desk = Desk()
        self._boxes: tuple[Mailbox, Mailbox, Mailbox] | None = None  # requests, presence, tickets
        self._ahead: Ahead[Told] = Ahead("arraybridge-service")
        self._taken_ahead = self._closed = False

    @property
    def ended(self) -> bool:
        """True after `close` was called here."""
        return self._closed

    @abstractmethod
    def open(self) -> Self:
        """Becomes a server."""

    @abstractmethod
    def _read(self, private: bool) -> None:
        """Begins to read what callers answer. `private`: their arrays are mapped copy-on-write."""

    @abstractmethod
    def _ask(self, ticket: Letter, called_ns: int) -> bool:
        """Asks the caller for the request that it called at this time. False: it has ended, or its time is over."""

    @abstractmethod
    def _lapse(self, key: Key) -> None:
        """The caller lives, and has not answered in time."""

    @abstractmethod
    def _fail_dropped(self) -> None:
        """Requests that nobody can answer any more fail."""

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
        while True:
            given = self.receive(framework, timeout=timeout, **wishes)
            yield given
            for request in self._desk.begun():
                request.leave()
                del request
            del given  # while the next request is awaited, this frame holds no arrays

    def receive(self, framework: str = "numpy", *, timeout: float | None = None, **wishes: Unpack[ReceiverWishes]) -> Any:
        """The next Request, or Batch, as of `requests`, for servers that have several in their hands: it may be answered later, in
        any order, and by another thread. One that is dropped without an answer fails with the next call of this.

        Raises:
            As `requests`.
        """
        wanted = Wanted.of_share(framework, **wishes)
        self.open()
        self._read(wanted.private)
        self._fail_dropped()
        taken = self._batch(wanted, Due.after(timeout))
        return taken[0] if self._terms.batch is None else Batch(taken)

    def try_receive(self, framework: str = "numpy", **wishes: Unpack[ReceiverWishes]) -> Any:
        """`receive`, but None instead of BrokerTimeout if no request waits. If one does, its caller hands it over at once."""
        try:
            return self.receive(framework, timeout=0, **wishes)
        except BrokerTimeout:
            return None

    def fileno(self) -> int:
        """A descriptor that is readable while a request is there for `receive`, or `receive` would raise another error than
        BrokerTimeout: for `select`, selectors, asyncio and event loops of GUIs. From now on one request is taken ahead; it goes to
        another server if this one ends before it calls `receive`.

        Raises:
            Errors of `open`.
        """
        if not self.ended:
            self.open()
            self._read(False)
            if not self._taken_ahead:
                self._taken_ahead = True
                weakref.finalize(self, _end, self._tickets_box().end, self._ahead)
        return self._ahead.fileno(self._next())

    def _next(self) -> Callable[[], Told]:
        """Takes the next request, on the thread of `_ahead`."""
        return functools.partial(_told_without_limit, weakref.ref(self))

    def _tickets_box(self) -> Mailbox:
        if self._boxes is None:
            raise ChannelClosed(f"service {self._name!r} was closed here", reason="SERVICE_CLOSED")
        return self._boxes[2]

    def _batch(self, wanted: Wanted, due: Due) -> list[Request]:
        """At least one request; more while there is room and time."""
        most, taken = self._terms.batch or 1, self._first(wanted, due)
        due = Due.after(self._terms.within)
        if self._ahead:
            while len(taken) < most and (told := self._told(due)) is not None:
                taken += self._begun(told, wanted)
            return taken
        while len(taken) + self._desk.awaited() < most and _ask_for_next(weakref.ref(self), due):
            continue
        while len(taken) < most and self._desk.awaited():
            taken += self._begun(self._next_at_desk(), wanted)
        return taken

    def _first(self, wanted: Wanted, due: Due) -> list[Request]:
        while True:
            told = self._told(due)
            if told is None:
                what = f"no request for service {self._name!r} of namespace {self._broker.namespace!r} within {due.seconds or 0:g} s"
                raise BrokerTimeout(f"{what}: call it in another process, or pass a larger timeout=", 4, "NO_REQUEST")
            taken = self._begun(told, wanted)
            if taken:
                return taken

    def _told(self, due: Due) -> Told | None:
        """The word of the next caller that was asked; None: there was none in time."""
        if not self._ahead:
            return _told_of(weakref.ref(self), due)
        coming = self._ahead.done(self._next(), due.left())
        return None if coming is None else coming.result()

    def _next_at_desk(self) -> Told | None:
        """The word of a caller that was asked; None: there is none yet."""
        told = self._desk.next(_LOOK_S)
        if told is None:
            self._look()
        return told

    def _look(self) -> bool:
        """Drops what it has asked of callers that have ended, or take too long. True: it has asked callers that are slow."""
        for key, until in self._desk.expected().items():
            if self._peers.is_gone(key[0]):
                self._desk.drop(key)
            elif time.monotonic() >= until:
                self._lapse(key)
        return self._peers.send_unsent() or bool(self._desk.expected())

    def _begun(self, told: Told | None, wanted: Wanted) -> list[Request]:
        """The request, which the server has from now on; none if the caller says no, or waits no longer."""
        if told is None or told.request is None or told.message is None:
            return []
        request = told.request
        if request.cancelled:  # its deadline is over, or its caller is gone
            self._desk.release(request.key)
            return []
        if not self._desk.begin(request):
            return []
        try:
            request.value = self._broker._delivery.granted(told.message, wanted, False)
        except BrokerError as error:
            request.fail(f"the server could not read it: {error.message}")
            return []
        return [request]


def _told_without_limit(of: weakref.ref[Taking]) -> Told:
    while (told := _told_of(of, NEVER)) is None or told.request is None:
        continue
    return told


def _told_of(of: weakref.ref[Taking], due: Due) -> Told | None:
    """The word of the next caller; None: no ticket came in time. Holds no Service while it waits for a ticket."""
    while (service := of()) is not None:
        if service._desk.awaited():
            told = service._next_at_desk()
            if told is not None:
                return told
            continue
        left = due.left()
        sooner = service._look() and (left is None or left > _LOOK_S)
        del service
        if not _ask_for_next(of, Due.after(_LOOK_S) if sooner else due) and not sooner:
            return None
    raise ChannelClosed("the service was dropped here", reason="SERVICE_CLOSED")


def _ask_for_next(of: weakref.ref[Taking], due: Due) -> bool:
    """Takes a ticket, and asks its caller for the request. False: there was none in time."""
    while (service := of()) is not None:
        tickets = weakref.ref(service._tickets_box().channel)
        del service
        try:
            message = next_of(tickets, False, due.left())
        except (ChannelClosed, PeerGone) as told:  # of callers, which come and go
            if told.reason == "CHANNEL_NOT_OPEN":
                raise
            continue
        if message is None:
            return False
        ticket, (_, _, called_ns, _, _) = letters.read(message[0].metadata), message[0].sent or (0, 0, 0, 0, "")
        service = of()
        if service is not None and ticket is not None and ticket.kind == letters.TICKET and service._ask(ticket, called_ns):
            return True
        del service
    return False


def _end(end: _core.ChannelEnd, ahead: Ahead[Told]) -> None:
    """Of a Service that was dropped: the thread that takes ahead returns."""
    ahead.stop()
    try:
        end.close(False)
    except _core.StatusError:
        return


autograph.mark_module(__name__)
