"""A Watch tells what happens at the broker: who publishes, reads, withdraws, comes, goes, and is refused.

It is told of this namespace's shares and of all sessions of this user. Arrays that are read without a call, as most are
that a process has found before, are not told.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from arraybridge import _core, autograph
from arraybridge.arguments import check_seconds, check_text, check_word
from arraybridge.broker.worker import Worker, told
from arraybridge.errors import BrokerTimeout, InvalidRequest, WatchClosed, from_status

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

Kind = Literal[
    "allocate", "publish", "acquire", "release", "withdraw", "session_begin", "session_end", "refusal", "quota"
]
KINDS: Final[tuple[str, ...]] = get_args(Kind)


class Event(NamedTuple):
    """One thing that happened. What does not apply to its kind is empty or 0.

    Attributes:
        kind: of `Kind`; "unknown" of a broker that is newer than this package.
        time_ns: nanoseconds since 1970.
        name, share, generation: of the share; a share that was sent into a channel has the channel's name.
        session, pid, uid: whose doing it was; session 0 is the broker's own.
        nbytes, device: of the share, or of the memory that was allocated; "cpu" or "cuda:UUID".
        code, reason, verb: of a refusal: gRPC's status code, a short word, and what was asked for. A withdrawal's reason
            is withdrawn, replaced, orphaned, lost, expired, publisher_exit, administration or reload.
        note: of a publish or acquire how the bytes came, or were to be read; of a refusal its message; of a session its
            program.
    """

    kind: str
    time_ns: int
    namespace: str
    name: str
    share: int
    generation: int
    session: int
    pid: int
    uid: int
    nbytes: int
    device: str
    code: int
    reason: str
    verb: str
    note: str


class Watch(Iterator[Event], AsyncIterator[Event]):
    """What happens from the moment it is made, by `Broker.watch`, one event after the other. Thread-safe.

    Other calls of the Broker go on meanwhile. In a forked child it begins anew with the first event that is asked for.

    Example:
        with broker.watch(kinds=["publish"]) as published:
            for event in published:
                print(event.name, event.nbytes)
    """

    def __init__(self, broker: Broker, kinds: Sequence[Kind] | Kind | None, names: str) -> None:
        wanted = [kinds] if isinstance(kinds, str) else list(kinds or ())
        for kind in wanted:
            check_word(kind, "a kind of event", KINDS)
        if not isinstance(names, str):
            raise InvalidRequest(f"names is the beginning of names, a str, not {type(names).__name__}")
        check_text(names, "the beginning of names")
        self._broker = broker
        self._kinds: Final = wanted
        self._names: Final = names
        self._closed = False
        self._reset()
        self._opened()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open: list[_core.WatchEnd] = []
        self._workers: list[Worker] = []
        # What was asked for by tasks that wait no more.
        self._unclaimed: deque[Future[Event]] = deque()
        self._end = weakref.finalize(self, _let_go, self._open, self._workers)

    @property
    def closed(self) -> bool:
        """Whether `close` was called here."""
        return self._closed

    def next(self, timeout: float | None = None) -> Event:
        """The next event.

        Args:
            timeout: seconds to wait for one; None: as long as it takes. Ctrl-C ends it, and loses nothing.

        Raises:
            BrokerTimeout: nothing happened in time. WatchClosed: it was closed here.
            EventsLost: it was read too slowly, and is closed; the message says how many events it lost.
            BrokerUnavailable: the broker has gone, and the watch with it.
        """
        timeout = None if timeout is None else check_seconds(timeout, "timeout")
        self._opened()
        if not self._unclaimed:
            return self._next(timeout)
        coming = self._coming()
        try:
            done = wait([coming], timeout).done
        except BaseException:
            self._unclaimed.append(coming)
            raise
        if done:
            return coming.result()
        self._unclaimed.append(coming)
        raise BrokerTimeout("nothing happened in time", 4, "NO_EVENT")

    async def anext(self, timeout: float | None = None) -> Event:
        """`next`, while the event loop goes on. What comes for a task that was cancelled is the next one's."""
        timeout = None if timeout is None else check_seconds(timeout, "timeout")
        coming = self._coming()
        try:
            done, _ = await asyncio.wait({told(coming)}, timeout=timeout)
        except asyncio.CancelledError:
            self._unclaimed.append(coming)
            raise
        if done:
            return coming.result()
        self._unclaimed.append(coming)
        raise BrokerTimeout("nothing happened in time", 4, "NO_EVENT")

    def __iter__(self) -> Watch:
        return self

    def __aiter__(self) -> Watch:
        return self

    def __next__(self) -> Event:
        try:
            return self.next()
        except WatchClosed:
            raise StopIteration from None

    async def __anext__(self) -> Event:
        try:
            return await self.anext()
        except WatchClosed:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Nothing more is told. Who waits in it is told so, and loops over it end. Idempotent."""
        if self._pid != os.getpid():
            self._end.detach()
            self._reset()
        with self._lock:
            self._closed = True
            ends, workers = list(self._open), list(self._workers)
            self._open.clear()
            self._workers.clear()
        _let_go(ends, workers)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        of = f" of {', '.join(self._kinds)}" if self._kinds else ""
        return f"<Watch{of} in namespace {self._broker.namespace!r}, {'closed' if self._closed else 'open'}>"

    def _opened(self) -> _core.WatchEnd:
        if self._pid != os.getpid():
            # A forked child: what is open is its parent's.
            self._end.detach()
            self._reset()
        with self._lock:
            if self._closed:
                raise WatchClosed("this watch was closed", 5, "WATCH_NOT_OPEN")
            if not self._open:
                connection = self._broker._connection
                self._open.append(connection.ask(lambda core: core.open_watch(self._kinds, self._names)))
            return self._open[0]

    def _next(self, timeout: float | None) -> Event:
        try:
            return Event(*self._opened().next(timeout))
        except _core.StatusError as status:
            if self._closed:
                raise WatchClosed("this watch was closed", 5, "WATCH_NOT_OPEN") from None
            raise from_status(status) from None

    def _coming(self) -> Future[Event]:
        """What was asked for by a task that waits no more, or is from now on."""
        self._opened()
        try:
            return self._unclaimed.popleft()
        except IndexError:
            pass
        with self._lock:
            if not self._workers:
                self._workers.append(Worker("arraybridge-watch"))
            worker = self._workers[0]
        return worker.submit(lambda: self._next(None))


def _let_go(ends: list[_core.WatchEnd], workers: list[Worker]) -> None:
    """The calls that wait in it end."""
    for worker in workers:
        worker.stop()
    for end in ends:
        try:
            end.close()
        except _core.StatusError:
            continue  # with the broker everything has ended


autograph.mark_module(__name__)
