# SPDX-License-Identifier: Apache-2.0
"""A Caller is the part of a Broker that asks one service: it gives each request to one server, and waits for the answers.

Threads: one reads the answers and sends requests to the servers that ask for them; one waits for the end of servers; one
sends tickets that found no room, or may be lost, and one what found no room in the box of a server, or no memory; one ends the
waits of submitted calls; one gives the answers of those their forms, and calls the users' callbacks. None holds the Caller while
it waits.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import uuid
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeVar

from arraybridge import _core
from arraybridge.broker.delivery import Acquired, Wanted
from arraybridge.broker.due import NEVER, Due
from arraybridge.broker.message import Message
from arraybridge.broker.services import letters
from arraybridge.broker.services.call import Call
from arraybridge.broker.services.deadlines import Deadlines
from arraybridge.broker.services.errors import RequestFailed
from arraybridge.broker.services.letters import Letter
from arraybridge.broker.services.mailbox import CAPACITY, Mailbox, channel_of
from arraybridge.broker.services.reading import read_letters, wait_for_ends
from arraybridge.broker.services.suspicion import Suspicion
from arraybridge.broker.worker import Worker
from arraybridge.errors import BrokerError, BrokerTimeout, BrokerUnavailable, ChannelClosed, OutOfMemory, PeerGone

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

RETIRED: Final = "CALLER_RETIRED"
C = TypeVar("C", bound=Call)


class Caller:
    """Thread-safe.

    Args:
        private: answers are mapped copy-on-write, for frameworks that write.

    Raises:
        Errors of `Channel.open`: there is no broker, or the service has too many ends.
    """

    def __init__(self, broker: Broker, service: str, private: bool) -> None:
        self._private: Final = private
        self._broker = broker
        self._service = service
        self._id: Final = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._number = 0
        self._used = time.monotonic()
        self._lost: BrokerError | None = None  # why no call can be made any more
        self._servers: dict[str, Mailbox] = {}  # of the thread that reads answers alone
        self._suspicion = Suspicion()
        self._gone: set[str] = set()  # servers that have ended, and whose last answers may not be read yet
        self._answers = Mailbox(broker, channel_of(service, "answers", self._id), "receiver", CAPACITY)
        self._presence = Mailbox(broker, channel_of(service, "presence"), "receiver", mode="broadcast")
        self._tickets = Mailbox(broker, channel_of(service, "tickets"), "sender")
        self._late = Worker("arraybridge-tickets")
        self._telling = Worker("arraybridge-requests")
        self.delivering = Worker("arraybridge-answers")
        self._was_slow = False  # servers may have asked in vain
        self._deadlines = Deadlines(functools.partial(_take_back, weakref.ref(self)))
        workers = [self._late, self._telling, self.delivering]
        self._end = weakref.finalize(self, _end, workers, [self._answers.end, self._presence.end, self._tickets.end], self._calls)
        for run, mailbox in (read_letters, self._answers), (wait_for_ends, self._presence):
            of = weakref.ref(self), weakref.ref(mailbox.channel)
            threading.Thread(target=run, args=of, name=f"arraybridge-{run.__name__}", daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._lost is not None

    def begin(self, content: Message, wanted: Wanted, due: Due, waits: bool, kind: type[C]) -> C:
        """A new call, whose ticket is sent.

        Args:
            waits: this thread waits for room for the ticket, and for the answer; otherwise other threads do.

        Raises:
            BrokerUnavailable. BrokerTimeout: there was no room in time.
        """
        with self._lock:
            if self._lost is not None:
                raise self._lost
            self._used = time.monotonic()
            self._number += 1
            call = self._calls[self._number] = kind(self._number, self._service, content, wanted, due)
        if waits:
            try:
                self._announce(call, due)
            except BaseException:
                self.take_back(call)  # nobody gets its outcome, so no server may execute it
                raise
            return call
        self._deadlines.add(call)
        if not self._tickets.try_post(call.letter(letters.TICKET, self._id)):
            self._later(call)
        return call

    def take_back(self, call: Call) -> None:
        """The time of the call is over: no server gets it from now on, and an answer is dropped."""
        if self._forget(call):
            self._cancel(call)
            call.failed(call.timed_out())

    def drop(self, call: Call) -> None:
        """`take_back` later, without a lock: for finalizers. REQUIRES: `may_drop` was called."""
        self._telling.submit(lambda: self.take_back(call))

    def may_drop(self) -> None:
        self._telling.start()

    def cancel(self, call: Call) -> bool:
        """True: no server has got the request, and none will. False: the server is told, and the outcome is what it answers."""
        with self._lock:
            taken = bool(call.server) or call.number not in self._calls
            if not taken:
                del self._calls[call.number]
        if taken:
            self._cancel(call)
            return False
        call.outcome.cancel()
        return True

    def make_room(self, call: Call, room: int) -> None:
        """The server may send so many further items."""
        self._tell_its_server(call, Letter(letters.MORE, self._id, call.number, room=room))

    @property
    def idle_since(self) -> float | None:
        """When it was used last; None: a call waits."""
        with self._lock:
            return None if self._calls else self._used

    def retire(self) -> bool:
        """Ends it, unless a call waits."""
        with self._lock:
            if self._calls:
                return False
            self._lost = self._lost or BrokerUnavailable("this caller was not used for long", 14, RETIRED)
        self._fail(self._lost)
        return True

    def close(self) -> None:
        """Ends it. Calls that wait fail."""
        self._fail(BrokerUnavailable("the Broker was closed during the call: the outcome is unknown", 14, "BROKER_CLOSED"))

    def _forget(self, call: Call) -> bool:
        """False: it has its outcome, or another thread gives it one."""
        with self._lock:
            return self._calls.pop(call.number, None) is not None

    def _cancel(self, call: Call) -> None:
        call.withdrawn = True
        self._tell_its_server(call, call.letter(letters.CANCEL, self._id))

    def _tell_its_server(self, call: Call, letter: Letter) -> None:
        """At once, or when the server's box has room, unless the call's time is over before."""
        server = self._servers.get(call.server)
        if server is not None:
            self._tell(server, letter, call.due)

    def _tell(self, server: Mailbox, letter: Letter, due: Due = NEVER) -> None:
        if not server.try_post(letter):
            self._telling.submit(lambda: server.post(letter, due=due))

    def _announce(self, call: Call, due: Due) -> None:
        """Sends its ticket, unless a server has the call. Fails the call if it cannot."""
        ticket = call.letter(letters.TICKET, self._id)
        while call.number in self._calls and not call.server:
            try:
                return self._tickets.post(ticket, due=due)
            except (PeerGone, ChannelClosed) as told:
                if told.reason == "CHANNEL_NOT_OPEN":
                    return
            except BrokerTimeout:
                return self.take_back(call)
            except BrokerError as error:
                if self._forget(call):
                    call.failed(error)

    def _later(self, call: Call) -> None:
        self._late.submit(lambda: self._announce(call, call.due))

    def _announce_again(self) -> None:
        """A server has ended that may have had tickets."""
        with self._lock:
            waiting = [call for call in self._calls.values() if not call.server]
        for call in waiting:
            self._later(call)

    def _fail(self, why: BrokerError) -> None:
        """All calls fail, and no call can be made any more."""
        with self._lock:
            self._lost = self._lost or why.with_traceback(None)
            calls = list(self._calls.values())
            self._calls.clear()
        for call in calls:
            call.failed(why)
        self._end()
        for mailbox in (self._answers, self._presence, self._tickets, *list(self._servers.values())):
            mailbox.abandon()

    # Of the thread that reads answers:

    def _wishes(self) -> tuple[bool, float | None]:
        """How the next answer is mapped, and for how many seconds it is awaited before servers are examined again."""
        return self._private, 0.0 if self._gone or self._was_slow else self._suspicion.pause()

    def _received(self, message: Acquired | None) -> None:
        if message is None:
            return self._all_is_read()
        letter = letters.read(message[0].metadata)
        if letter is None:
            return
        self._was_slow |= letters.age_s(message[0]) > letters.PATIENCE_S / 2
        if letter.kind == letters.ASK:
            self._asked(letter, message[0])
        elif letter.kind == letters.BYE:
            self._parted(letter.peer, frozenset(letter.held))
        elif (call := self._call_of(letter)) is None:
            return  # it is over, and the answer is freed
        elif letter.kind == letters.BACK:
            self._handed_back(call, letter.peer)
        elif letter.kind == letters.ITEM:
            call.item(message)
        elif self._forget(call):
            if letter.kind == letters.FAILED:
                call.failed(RequestFailed(f"the server of service {self._service!r} has no result: {letter.text}"))
            else:
                call.answered(message, letter.kind)

    def _call_of(self, letter: Letter) -> Call | None:
        with self._lock:
            call = self._calls.get(letter.number)
            return call if call is not None and call.server == letter.peer else None

    def _asked(self, letter: Letter, sent: _core.ShareInfo) -> None:
        """A server has a ticket: it gets the request if no other one has it."""
        server = self._server(letter.peer)
        if server is None:
            return self._announce_again()
        with self._lock:
            call = self._calls.get(letter.number)
            if call is not None and (call.server or call.due.over()):
                call = None
            if call is not None:
                _, _, _, process_id, client = sent.sent or (0, 0, 0, 0, "")
                call.given_to(letter, process_id, client)
        if call is None:
            self._tell(server, Letter(letters.NO, self._id, letter.number))
        elif not self._gave(call, letter.peer, 0.0):  # answers to other calls do not wait for memory for this one
            self._telling.submit(lambda: self._gave(call, letter.peer, self._patience(call)))

    def _gave(self, call: Call, id: str, seconds: float) -> bool:
        """False: there is no room, or no memory, yet, and `seconds` is 0."""
        server = self._servers.get(id)
        if server is None or call.server != id:
            return True  # that server has ended meanwhile
        if call.number not in self._calls:
            self._tell(server, Letter(letters.NO, self._id, call.number))
            return True
        try:
            server.post(call.letter(letters.GO, self._id), call.content, Due.after(seconds))
        except (PeerGone, ChannelClosed):
            self._handed_back(call, id)
            return True
        except Exception as error:  # it cannot be sent to any server
            if not seconds and isinstance(error, BrokerTimeout | OutOfMemory | MemoryError):
                return False
            self._tell(server, Letter(letters.NO, self._id, call.number))
            if self._forget(call):
                call.failed(error)
        if call.withdrawn:  # meanwhile, and perhaps before the server knew of it
            self._cancel(call)
        return True

    def _patience(self, call: Call) -> float:
        """Seconds to wait for memory for the arrays of a request."""
        left, most = call.due.left(), self._broker.timeout_s
        return most if left is None else min(left, most)

    def _server(self, id: str) -> Mailbox | None:
        """None: it has ended since it asked."""
        known = self._servers.get(id) or Mailbox.to(self._broker, channel_of(self._service, "requests", id))
        if known is not None:
            self._servers[id] = known
        return known

    def _handed_back(self, call: Call, id: str) -> None:
        """The server has not executed it."""
        with self._lock:
            if call.server != id:
                return
            call.server = ""
        self._later(call)

    def _parted(self, id: str, held: frozenset[int] | None = None) -> None:
        """A server has ended. `held`: the requests that it may have executed; None: all that it got."""
        if (server := self._servers.pop(id, None)) is not None:
            server.discard()
        with self._lock:
            calls = [call for call in self._calls.values() if call.server == id]
        for call in calls:
            if call.may_retry or (held is not None and call.number not in held):
                self._handed_back(call, id)
            elif self._forget(call):
                call.failed(call.gone())

    def _examine(self) -> None:
        """Finds servers that have ended, if a notice has said that there is one."""
        if self._suspicion.due():
            self._gone.update(id for id, server in self._servers.items() if server.owner_is_gone())

    def _all_is_read(self) -> None:
        """No answer is there: also none that a server that has ended sent before. A server that found no room for its question has
        dropped the ticket.
        """
        if self._was_slow:
            self._was_slow = False
            self._announce_again()
        while self._gone:
            self._suspicion.confirmed()
            self._parted(self._gone.pop())


def _take_back(of: weakref.ref[Caller], call: Call) -> None:
    if (caller := of()) is not None:
        caller.take_back(call)


def _end(workers: list[Worker], ends: list[Any], calls: dict[int, Call]) -> None:
    for call in list(calls.values()):
        call.failed(BrokerUnavailable("the Broker was dropped during the call: the outcome is unknown", 14, "BROKER_CLOSED"))
    for worker in workers:
        worker.stop()
    for end in ends:
        with contextlib.suppress(_core.StatusError):
            end.close(False)
