# SPDX-License-Identifier: Apache-2.0
"""A Channel is a named queue of arrays between processes: each array is received in the order of sending, once, or by
each receiver once (mode "broadcast" and "latest").

Any number of processes send and receive. The queue is bounded, so a slow receiver delays its senders and does not fill
the memory. Arrays are copied only into broker memory, as by `Broker.put`.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, Unpack

from arraybridge import _core, autograph
from arraybridge.arguments import Access, ReadWishes, check_text, check_word
from arraybridge.broker.connection import UNAVAILABLE
from arraybridge.broker.delivery import Acquired, Decided, Short, Wanted, fast
from arraybridge.broker.due import Due
from arraybridge.broker.message import Message, freeze_alike
from arraybridge.broker.patterns.ahead import Ahead
from arraybridge.broker.patterns.calls import awaited
from arraybridge.broker.patterns.metadata import decoded
from arraybridge.broker.patterns.receiver import Pace, Receiver, ReceiverWishes
from arraybridge.broker.patterns.terms import Terms
from arraybridge.broker.worker import Worker
from arraybridge.conversion import shortcut
from arraybridge.errors import BrokerError, BrokerTimeout, ChannelClosed, from_status
from arraybridge.notebook.facts import table_of
from arraybridge.planner import Plan

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

T = TypeVar("T")
Role = Literal["sender", "receiver"]
OnPeerDeath = Literal["raise", "wait"]
_EMPTY: Final = "CHANNEL_EMPTY"
_LOST: Final = "CHANNEL_LOST"
_NO_PLANS: Final[Decided] = {}


class Sender(NamedTuple):
    """The process that sent an array.

    Attributes:
        process_id: as the daemon sees it; 0: unknown.
        client: the name of its program: `Broker(client=)`.

    Example:
        >>> frames.send(np.ones(3))
        >>> frames.receive(info=True).sender.client == arraybridge.Sender(0, "prep-1").client
        False
    """

    process_id: int
    client: str


class Received(NamedTuple):
    """A received array, or tree, and what is known of it (`info=True`).

    Attributes:
        array: as `receive` returns it without `info`.
        metadata: the sender's own bytes, or its tree of plain values.
        sequence: 1 for the first array that was ever sent into the channel.
        stream: the number of the stream in which it was sent.
        sent_ns: when it was sent: nanoseconds of `time.clock_gettime_ns(time.CLOCK_BOOTTIME)`.
        sender: the process that sent it.

    Example:
        >>> frames.send(np.ones(3), metadata=b"left")
        >>> received = frames.receive(info=True, timeout=10)
        >>> received.metadata, received.sequence
        (b'left', 1)
    """

    array: Any
    metadata: Any
    sequence: int
    stream: int
    sent_ns: int
    sender: Sender

    @classmethod
    def of(cls, array: Any, share: _core.ShareInfo) -> Received:
        """The result of a receive with what the extension knows of it."""
        sequence, stream, sent_ns, process_id, client = share.sent or (0, 0, 0, 0, "")
        return cls(array, decoded(share.metadata), sequence, stream, sent_ns, Sender(process_id, client))


class Channel(_core.ChannelBase):
    """One process's place in a channel, made by `Broker.channel`. Thread-safe.

    The first `send` makes this process a sender, the first `receive` a receiver; `open` does so earlier.

    A channel carries one stream after another. A stream begins with its first sender, and ends when the last one has
    called `close`: each receiver gets ChannelClosed once, after the arrays that were sent before, and a loop over the
    channel ends. If a sender is lost (its process died, or its `with` block raised), receivers get PeerGone once
    instead; the next `receive` waits for senders that are left or come back. If the last receiver closes, queued arrays
    are dropped, and senders get ChannelClosed once; if it is lost, queued arrays stay, and senders get PeerGone once.
    All threads that wait in this Channel then are told; one that works meanwhile is not. So threads that loop call
    `Broker.channel` each.
    docs/guides/channels.md has the states.

    Example:
        >>> with broker.channel("images") as images:    # one process
        ...     images.send(np.ones((4, 4)))
        >>> for image in broker.channel("images").receiver("torch"):    # another
        ...     print(image.shape)
        torch.Size([4, 4])
    """

    def __init__(self, broker: Broker, name: str, terms: Terms, on_peer_death: OnPeerDeath = "raise") -> None:
        check_text(name, "a channel's name", empty=False)
        terms.check()
        self._broker = broker
        self._name: Final = name
        self._terms: Final = terms
        check_word(on_peer_death, "on_peer_death", ["raise", "wait"])
        self._waits: Final = on_peer_death == "wait"
        self._closed = False
        self._reset()
        _channels.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[Role, _core.ChannelEnd] = {}
        self._workers: dict[Role, Worker] = {}
        self._ahead: Ahead[Acquired] = Ahead("arraybridge-receiver")
        self._prepare(self._broker._fast, self._ends, self._ahead, shortcut.makers, freeze_alike, self._waits)
        self._end = weakref.finalize(self, _end_calls, self._ends, self._workers, self._ahead)

    @property
    def name(self) -> str:
        """The name of the channel in its namespace."""
        return self._name

    @property
    def closed(self) -> bool:
        """True if `close` was called here."""
        return self._closed

    @property
    def capacity(self) -> int:
        """Maximum number of queued arrays, or trees of arrays, as of the time when this process opened an end.

        Raises:
            ChannelClosed: no end is open.
        """
        for end in self._ends.values():
            return end.capacity
        what = f"no end of channel {self._name!r} is open here: open, send and receive open one"
        raise ChannelClosed(what, reason="CHANNEL_NOT_OPEN")

    def open(self, role: Role) -> Channel:
        """Becomes a sender or a receiver at once, not with the first array, so that the other ends see it.

        Raises:
            InvalidRequest: another role; or the channel has another capacity, or the capacity exceeds the broker's
                limit.
            OutOfMemory: too many channels, or too many ends of this one. ChannelClosed, BrokerUnavailable.
        """
        check_word(role, "role", ["sender", "receiver"])
        self._opened(role)
        return self

    @fast
    def send(self, array: Any, *, metadata: Any = None, timeout: float | None = None) -> None:
        """Sends an array, or a tree as in `Broker.put`; waits for room in the queue and in memory.

        Copies once. An array that was born in broker memory (`Broker.empty`) is not copied, and must not be written any
        more. An array that was received or got from this namespace, or a contiguous part of one, is not copied either
        unless it was written since.

        Args:
            array: as in `Broker.put`.
            metadata: bytes of your own, or plain values in a tree, for `receive(info=True)`; at most
                `limits.metadata_bytes_max` of the broker (16,384).
            timeout: seconds to wait for room; None: no limit. Ctrl-C ends it; the array may still be sent.

        Raises:
            BrokerTimeout: no room in the queue in time. OutOfMemory: no room in memory.
            PeerGone: the last receiver is lost. ChannelClosed: the last receiver has closed it, or it was closed here.
                Nothing was sent; the next `send` queues for the next receiver.
            UnsupportedArray, UnsupportedDtype: no framework could read it. InvalidRequest: an invalid tree.
            BrokerUnavailable: the broker has ended, and queued arrays are lost; the next call opens the channel again.

        Example:
            >>> frames = broker.channel("frames")
            >>> frames.send(np.arange(3), metadata=b"first", timeout=10)
        """
        due = Due.after(timeout)
        self._send(Message.of(array, metadata), due)
        shortcut.maker_of(type(array))  # the next one is sent in C

    async def asend(self, array: Any, *, metadata: Any = None, timeout: float | None = None) -> None:
        """`send` for an event loop. If the task is cancelled, `CallCancelled.outcome` says whether the array is sent: a send that
        has begun goes on.
        """
        due = Due.after(timeout)
        message = Message.of(array, metadata).exported()
        await awaited(self._worker("sender").submit(lambda: self._send(message, due)))

    @fast
    def receive(
        self,
        framework: str = "numpy",
        *,
        timeout: float | None = None,
        access: Access = "safe",
        explain: bool = False,
        info: bool = False,
        **wishes: Unpack[ReadWishes],
    ) -> Any:
        """The oldest array, or tree, that no receiver has taken, or in a broadcast that this one has not, as `framework`'s.

        The arrays stay valid as long as they are referenced, like those of `Broker.get`.

        Args:
            timeout: seconds to wait for one; None: no limit. Ctrl-C ends it, and nothing is lost.
            framework, access, explain, wishes: as in `Broker.get`.
            info: returns Received: the usual result, the bytes that were sent with it, its number, stream, time and sender.

        Raises:
            ChannelClosed: the stream has ended, or it was closed here. PeerGone: a sender is lost. The next `receive`
                waits for who is left or comes back.
            BrokerTimeout: nothing arrived in time. Errors of `Broker.get` about the arrays; these are lost then.

        Example:
            >>> frames.send(np.arange(3))    # usually in another process
            >>> frames.receive("torch", timeout=10)
            tensor([0, 1, 2])
        """
        delivery = self._broker._delivery
        bare = type(framework) is str and access == "safe" and not wishes
        wanted = Wanted.of_share(framework, access, **wishes)
        known = None if explain or info else delivery.short_for(wanted, framework if bare else None)
        result, plan = self._received(known or (wanted.private, _NO_PLANS), Due.after(timeout))
        if plan is None:
            return self._result_of(result, wanted, info, explain)
        delivery.note(plan)
        return result

    async def areceive(
        self,
        framework: str = "numpy",
        *,
        timeout: float | None = None,
        access: Access = "safe",
        explain: bool = False,
        info: bool = False,
        **wishes: Unpack[ReadWishes],
    ) -> Any:
        """`receive` for an event loop. An array that arrives for a cancelled task is kept for the next call."""
        wanted = Wanted.of_share(framework, access, **wishes)
        received = await self._areceived(wanted.private, Due.after(timeout))
        return self._result_of(received, wanted, info, explain)

    def receiver(
        self,
        framework: str = "numpy",
        *,
        timeout: float | None = None,
        info: bool = False,
        deadline: float | None = None,
        **wishes: Unpack[ReceiverWishes],
    ) -> Receiver:
        """The results of `receive` until the stream ends: for `for` and for `async for`.

        deadline: seconds from one array to the next, after which `Late` is raised once; `Receiver.late` counts. None: no limit.
        """
        bare = type(framework) is str and not wishes and not info
        pace = Pace.checked(timeout, deadline)
        return Receiver(self, Wanted.of_share(framework, **wishes), pace, info, framework if bare else None)

    def try_receive(self, framework: str = "numpy", **wishes: Any) -> Any:
        """`receive` with its other arguments, but None instead of BrokerTimeout if nothing is there. It does not wait."""
        try:
            return self.receive(framework, timeout=0, **wishes)
        except BrokerTimeout:
            return None

    def fileno(self) -> int:
        """A descriptor that is readable while `receive(timeout=0)` would return, or raise another error than BrokerTimeout:
        for `select`, selectors, asyncio and event loops of GUIs. It is this object's, and another one in a forked child. From
        now on one array is received ahead.

        Raises:
            Errors of `open`.
        """
        if not self._closed:
            self._opened("receiver")
        return self._ahead.fileno(self._next(False))

    def __iter__(self) -> Iterator[Any]:
        return self.receiver()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.receiver()

    def drain(self) -> int:
        """Drops what is queued, and returns the number of arrays. Receivers of a broadcast miss it.

        Raises:
            InvalidRequest: there is no such channel. BrokerUnavailable.
        """
        return self._broker._connection.ask(lambda core: core.drain_channel(self._name))

    def close(self) -> None:
        """Ends sending and receiving here; the stream of this end is complete. Waiting calls return. Idempotent."""
        self._close(complete=True)

    def abandon(self) -> None:
        """Closes this end and declares its stream incomplete."""
        self._close(complete=False)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        self._close(complete=raised is None)

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, raised: type[BaseException] | None, *_: object) -> None:
        self._close(complete=raised is None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the constructor's arguments; the other process opens ends of its own."""
        return Channel, (self._broker, self._name, self._terms, "wait" if self._waits else "raise")

    def __repr__(self) -> str:
        state, capacity = self._seen()
        size = "" if capacity is None else f", capacity {capacity}"
        return f"<Channel {self._name!r} of namespace {self._broker.namespace!r}, {state}{size}{self._terms.shown()}>"

    def _repr_html_(self) -> str:
        state, capacity = self._seen()
        return table_of(f"Channel {self._name}", [
            ("namespace", self._broker.namespace),
            ("state", state),
            ("capacity", "unknown before an end is open" if capacity is None else capacity),
            ("mode", self._terms.mode or "as stated by other ends, else queue"),
            ("broker", self._broker.latest_address or "not connected"),
        ])  # fmt: skip

    def _seen(self) -> tuple[str, int | None]:
        """The state and the capacity as this process knows them, without a call. A forked child has no ends yet."""
        ends = dict(self._ends)
        state = "closed" if self._closed else " and ".join(ends) or "not open"
        return state, next((end.capacity for end in ends.values()), self._terms.capacity)

    def _opened(self, role: Role) -> _core.ChannelEnd:
        # Without the lock, which a signal handler would wait for that closes the channel.
        known = self._ends.get(role)
        if known is not None:
            return known
        with self._lock:
            if self._closed:
                what = f"channel {self._name!r} was closed here: make a new one with Broker.channel"
                raise ChannelClosed(what, reason="CHANNEL_NOT_OPEN")
            end = self._ends.get(role)
            if end is None:
                sends = role == "sender"
                end = self._broker._connection.ask(lambda core: self._terms.open(core, self._name, sends))
                self._ends[role] = end
            return end

    def _on(self, role: Role, call: Callable[[_core.ChannelEnd], T]) -> T:
        end = self._opened(role)
        try:
            return call(end)
        except _core.StatusError as status:
            raise self._error_of(role, end, status) from None

    def _error_of(self, role: Role, end: _core.ChannelEnd, status: _core.StatusError, timeout: float | None = None) -> BrokerError:
        """The error of a refused call; forgets an end that was lost with its connection."""
        if status.reason == _EMPTY:
            return self._nothing_came(timeout or 0)
        if status.code == UNAVAILABLE and status.reason != "DRAINING":
            with self._lock:
                if self._ends.get(role) is end:
                    del self._ends[role]
        return from_status(status) if status.reason == _LOST else self._broker._connection.error_of(status)

    def _result_of(self, received: Acquired, wanted: Wanted, info: bool, explain: bool = False) -> Any:
        """A received message in the form that the caller requested."""
        array = self._broker._delivery.granted(received, wanted, explain)
        return Received.of(array, received[0]) if info else array

    def _send(self, message: Message, due: Due) -> None:
        self._opened("sender")
        message.sent(self._broker._connection, functools.partial(self._on, "sender"), due, self._waits)

    def _received(self, short: Short, due: Due) -> tuple[Any, Plan | None]:
        """As `_core.receive`."""
        if self._ahead:
            return self._claimed(self._ahead.done(self._next(short[0]), due.left()), due), None
        end = self._opened("receiver")
        try:
            return _core.receive(end, short[0], due.left(), self._waits, short[1])
        except _core.StatusError as status:
            # No variable of this frame may hold the error: its traceback holds the frame, and so the channel.
            raise self._error_of("receiver", end, status, due.seconds) from None

    async def _areceived(self, private: bool, due: Due) -> Acquired:
        self._opened("receiver")
        return self._claimed(await self._ahead.adone(self._next(private), due.left()), due)

    def _claimed(self, coming: Future[Acquired] | None, due: Due) -> Acquired:
        if coming is None:
            raise self._nothing_came(due.seconds or 0)
        return coming.result()

    def _nothing_came(self, seconds: float) -> BrokerTimeout:
        what = f"no array arrived in channel {self._name!r} of namespace {self._broker.namespace!r} within {seconds:g} s"
        return BrokerTimeout(f"{what}: send one in another process, or pass a larger timeout=", 4, _EMPTY)

    def _next(self, private: bool) -> Callable[[], Acquired]:
        """Receives the next array, on the thread of `_ahead`."""
        return functools.partial(_receive_next, weakref.ref(self), private)

    def _worker(self, role: Role) -> Worker:
        self._opened(role)
        with self._lock:
            worker = self._workers.get(role)
            if worker is None:
                worker = self._workers[role] = Worker(f"arraybridge-{role}")
            return worker

    def _close(self, complete: bool) -> None:
        with self._lock:
            self._closed = True
            ends, workers = dict(self._ends), dict(self._workers)
            self._ends.clear()
            self._workers.clear()
        _stop(workers, self._ahead)
        for end in ends.values():
            try:
                end.close(complete)
            except _core.StatusError as status:
                if status.code != UNAVAILABLE:  # if the broker has ended, so have the ends
                    raise from_status(status) from None


def _receive_next(of: weakref.ref[Channel], private: bool) -> Acquired:
    """Holds no Channel while it waits, so that one that nobody uses any more is closed."""
    channel = of()
    if channel is None:
        raise ChannelClosed("the channel was dropped here", reason="CHANNEL_NOT_OPEN")
    end, waits = channel._opened("receiver"), channel._waits
    del channel
    try:
        return end.receive(private, None, waits)
    except _core.StatusError as status:
        channel = of()
        raise (from_status(status) if channel is None else channel._error_of("receiver", end, status)) from None


def _stop(workers: dict[Role, Worker], ahead: Ahead[Acquired]) -> None:
    ahead.stop()
    for worker in workers.values():
        worker.stop()


def _end_calls(ends: dict[Role, _core.ChannelEnd], workers: dict[Role, Worker], ahead: Ahead[Acquired]) -> None:
    """Cleans up after a Channel that was garbage-collected without `close`; the ends abandon themselves."""
    _stop(workers, ahead)
    for end in ends.values() if workers or ahead else ():
        # A worker may wait in the end, without a caller.
        try:
            end.close(False)
        except _core.StatusError:
            continue


_channels: weakref.WeakSet[Channel] = weakref.WeakSet()


def _after_fork() -> None:
    """In a forked child the open ends belong to the parent."""
    for channel in list(_channels):
        channel._end.detach()
        channel._reset()


os.register_at_fork(after_in_child=_after_fork)
autograph.mark_module(__name__)
