# SPDX-License-Identifier: Apache-2.0
"""A Channel is a named queue of arrays between processes: each array is received in the order of sending, once, or by
each receiver once (mode "broadcast" and "latest").

Any number of processes send and receive. The queue is bounded, so a slow receiver delays its senders and does not fill
the memory. Arrays are copied only into broker memory, as by `Broker.put`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import reprlib
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, Unpack

from arraybridge import _core, autograph
from arraybridge.arguments import Access, ReadWishes, check_text, check_word
from arraybridge.broker.connection import UNAVAILABLE
from arraybridge.broker.delivery import Acquired, Decided, Short, Wanted, fast
from arraybridge.broker.due import Due
from arraybridge.broker.facts import table_of
from arraybridge.broker.message import Message, freeze_alike
from arraybridge.broker.patterns.metadata import decoded
from arraybridge.broker.worker import Worker, waitable
from arraybridge.callers import warn
from arraybridge.conversion import shortcut
from arraybridge.errors import BrokerError, BrokerTimeout, ChannelClosed, InvalidRequest, from_status
from arraybridge.planner import Plan

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

T = TypeVar("T")
Role = Literal["sender", "receiver"]
OnPeerDeath = Literal["raise", "wait"]
Mode = Literal["queue", "broadcast", "latest"]
OnSlow = Literal["block", "drop_oldest"]
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


class Terms(NamedTuple):
    """How a channel is opened; the fields are those of `Broker.channel`."""

    capacity: int | None = None
    mode: Mode | None = None
    on_slow: OnSlow | None = None
    replay: int | None = None

    def check(self) -> None:
        """Raises:
        InvalidRequest: a value is none, or two contradict each other.
        """
        for what, value, least in ("capacity", self.capacity, 1), ("replay", self.replay, 0):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise InvalidRequest(f"{what} must be a number of arrays, at least {least}, not {value!r}")
        if self.mode is not None:
            check_word(self.mode, "mode", ["queue", "broadcast", "latest"])
        if self.on_slow is not None:
            check_word(self.on_slow, "on_slow", ["block", "drop_oldest"])
        if self.mode != "broadcast" and (self.on_slow is not None or self.replay is not None):
            raise InvalidRequest(f"on_slow and replay are for mode='broadcast', not mode={self.mode!r}")
        if self.replay is not None and self.capacity is not None and self.replay > self.capacity:
            raise InvalidRequest(f"replay={self.replay} exceeds capacity={self.capacity}: a receiver has no more arrays waiting")
        if self.mode == "latest" and self.capacity not in (None, 1):
            raise InvalidRequest(f"mode='latest' keeps one array: leave capacity={self.capacity} out")

    def open(self, core: _core.Core, name: str, sends: bool) -> _core.ChannelEnd:
        drops = None if self.on_slow is None else self.on_slow == "drop_oldest"
        return core.open_channel(name, sends, self.capacity or 0, self.mode or "", drops, self.replay)


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
        if not isinstance(name, str) or not name:
            raise InvalidRequest(f"a channel's name must be a non-empty str, not {reprlib.repr(name)}")
        check_text(name, "a channel's name")
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
        # Arrays that were received for cancelled tasks.
        self._unclaimed: deque[Future[Acquired]] = deque()
        self._prepare(self._broker._fast, self._ends, self._unclaimed, shortcut.makers, freeze_alike, self._waits)
        self._end = weakref.finalize(self, _end_calls, self._ends, self._workers)

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
        """`send` for an event loop. Cancelling the task does not take the array back: it is still sent."""
        due = Due.after(timeout)
        message = Message.of(array, metadata).exported()
        sent = self._worker("sender").submit(lambda: self._send(message, due))
        await asyncio.wait({waitable(sent)})
        sent.result()

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
        access: Access = "safe",
        info: bool = False,
        **wishes: Unpack[ReadWishes],
    ) -> Receiver:
        """The results of `receive` until the stream ends: for `for` and for `async for`."""
        bare = type(framework) is str and access == "safe" and not wishes and not info
        return Receiver(self, Wanted.of_share(framework, access, **wishes), timeout, info, framework if bare else None)

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
        mode = "" if self._terms.mode is None else f", {self._terms.mode}"
        return f"<Channel {self._name!r} of namespace {self._broker.namespace!r}, {state}{size}{mode}>"

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
        if self._unclaimed:
            coming = self._next_received(short[0])
            try:
                done = wait([coming], due.left()).done
            except BaseException:
                self._unclaimed.append(coming)
                raise
            return self._claimed(coming, bool(done), due), None
        end = self._opened("receiver")
        try:
            return _core.receive(end, short[0], due.left(), self._waits, short[1])
        except _core.StatusError as status:
            # No variable of this frame may hold the error: its traceback holds the frame, and so the channel.
            raise self._error_of("receiver", end, status, due.seconds) from None

    async def _areceived(self, private: bool, due: Due) -> Acquired:
        coming = self._next_received(private)
        try:
            done, _ = await asyncio.wait({waitable(coming)}, timeout=due.left())
        except asyncio.CancelledError:
            self._unclaimed.append(coming)
            raise
        return self._claimed(coming, bool(done), due)

    def _claimed(self, coming: Future[Acquired], done: bool, due: Due) -> Acquired:
        if done:
            return coming.result()
        self._unclaimed.append(coming)
        raise self._nothing_came(due.seconds or 0)

    def _nothing_came(self, seconds: float) -> BrokerTimeout:
        what = f"no array arrived in channel {self._name!r} of namespace {self._broker.namespace!r} within {seconds:g} s"
        return BrokerTimeout(f"{what}: send one in another process, or pass a larger timeout=", 4, _EMPTY)

    def _next_received(self, private: bool) -> Future[Acquired]:
        """An array that was received for a cancelled task, or the next one."""
        self._opened("receiver")
        try:
            return self._unclaimed.popleft()
        except IndexError:
            return self._worker("receiver").submit(lambda: self._on("receiver", lambda end: end.receive(private, None, self._waits)))

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
        for worker in workers.values():
            worker.stop()
        for end in ends.values():
            try:
                end.close(complete)
            except _core.StatusError as status:
                if status.code != UNAVAILABLE:  # if the broker has ended, so have the ends
                    raise from_status(status) from None


class Receiver(Iterator[Any], AsyncIterator[Any]):
    """Iterates over the arrays of a Channel until its stream ends."""

    def __init__(self, channel: Channel, wanted: Wanted, timeout: float | None, info: bool, bare: str | None) -> None:
        self._channel = channel
        self._wanted = wanted
        self._timeout = timeout
        self._info = info
        self._bare = bare  # the framework, if there are no other options

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Receiver cannot be pickled: pass the Channel or its name, and call receiver() in the other process")

    def __iter__(self) -> Receiver:
        return self

    def __aiter__(self) -> Receiver:
        return self

    def __next__(self) -> Any:
        """Raises:
        PeerGone: a sender is lost; the next call goes on. BrokerTimeout: nothing arrived in time.
        """
        delivery = self._channel._broker._delivery
        try:
            if self._bare is not None:
                return self._channel.receive(self._bare, timeout=self._timeout)
            short = None if self._info else delivery.short_for(self._wanted, None)
            result, plan = self._channel._received(short or (self._wanted.private, _NO_PLANS), Due.after(self._timeout))
        except ChannelClosed as ended:
            _warn_of_earlier(ended)
            raise StopIteration from None
        if plan is None:
            return self._channel._result_of(result, self._wanted, self._info)
        delivery.note(plan)
        return result

    async def __anext__(self) -> Any:
        try:
            received = await self._channel._areceived(self._wanted.private, Due.after(self._timeout))
        except ChannelClosed as ended:
            _warn_of_earlier(ended)
            raise StopAsyncIteration from None
        return self._channel._result_of(received, self._wanted, self._info)


def _warn_of_earlier(ended: ChannelClosed) -> None:
    """For a loop that ends without an array: it may belong to a second run, which is told of the end of the first."""
    if ended.earlier:
        remedy = "if that was an earlier run, start the loop again, or call Channel.drain() before the first receiver opens"
        warn(f"the loop ends without an array: {ended.message}; {remedy}", RuntimeWarning)


def _end_calls(ends: dict[Role, _core.ChannelEnd], workers: dict[Role, Worker]) -> None:
    """Cleans up after a Channel that was garbage-collected without `close`; the ends abandon themselves."""
    for worker in workers.values():
        worker.stop()
    for end in ends.values() if workers else ():
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
