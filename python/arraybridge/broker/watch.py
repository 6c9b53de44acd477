# SPDX-License-Identifier: Apache-2.0
"""A Watch delivers events of the broker: publishes, acquires, withdrawals, beginning and end of sessions, refusals.

It covers this namespace's shares and all sessions of this user. Acquires without a call, which are most acquires of
shares that a process has found before, cause no events.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from arraybridge import _core, autograph
from arraybridge.arguments import check_seconds, check_text, check_word
from arraybridge.broker.patterns.ahead import Ahead
from arraybridge.errors import BrokerError, BrokerTimeout, WatchClosed, from_status

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

Kind = Literal["allocate", "publish", "acquire", "release", "withdraw", "session_begin", "session_end", "refusal", "quota"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)
_NO_EVENT: Final = "NO_EVENT"


class Event(NamedTuple):
    """One event. Fields that do not apply to its kind are empty or 0.

    Attributes:
        kind: of `Kind`; "unknown" from a broker that is newer than this package.
        time_ns: nanoseconds since 1970.
        name, share, generation: of the share; a share that was sent into a channel has the channel's name.
        session, pid, uid: of the session that caused it; session 0 is the broker itself.
        nbytes, device: of the share, or of the allocated memory; "cpu" or "cuda:UUID".
        code, reason, verb: of a refusal: gRPC's status code, a short word, and the requested verb. The reason of a
            withdrawal is withdrawn, replaced, orphaned, lost, expired, publisher_exit, administration or reload.
        note: of a publish or acquire: how the bytes were written or read; of a refusal: its message; of a session: the
            name of its client.
        namespace: of the share.

    Example:
        >>> events, share = broker.watch("publish"), broker.put(np.ones(3), "cup")    # usually in another process
        >>> event = events.next(timeout=10)
        >>> event.kind, event.name, event.generation == share.generation
        ('publish', 'cup', True)
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
    """An iterator of events from its creation by `Broker.watch` on. Thread-safe.

    Other calls of the Broker are not delayed. In a forked child it starts again with the first event that is requested.

    Example:
        >>> with broker.watch(["publish", "withdraw"]) as changes:
        ...     share = broker.put(np.ones(3), "lamp")    # usually in another process
        ...     print(next(changes).name)
        lamp
    """

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Watch cannot be pickled: pass what it watches, and call Broker.watch in the other process")

    def __init__(self, broker: Broker, kinds: Sequence[Kind] | Kind | None, names: str) -> None:
        wanted = [kinds] if isinstance(kinds, str) else list(kinds or ())
        for kind in wanted:
            check_word(kind, "a kind of event", KINDS)
        check_text(names, "names (their prefix)")
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
        self._ahead: Ahead[Event] = Ahead("arraybridge-watch")
        self._end = weakref.finalize(self, _end_calls, self._open, self._ahead)
        self._end.atexit = False  # it ends with the process: a daemon thread that waits in it would report the end

    @property
    def closed(self) -> bool:
        """True if `close` was called here."""
        return self._closed

    def next(self, timeout: float | None = None) -> Event:
        """The next event.

        Args:
            timeout: seconds to wait for one; None: no limit. Ctrl-C ends it, and nothing is lost.

        Raises:
            BrokerTimeout: no event in time. WatchClosed: it was closed here.
            EventsLost: it was read too slowly and is closed; the message has the number of lost events.
            BrokerUnavailable: the broker has ended, and the watch with it.
        """
        timeout = None if timeout is None else check_seconds(timeout, "timeout")
        self._opened()
        return self._claimed(self._ahead.done(self._call, timeout), timeout) if self._ahead else self._next(timeout)

    async def anext(self, timeout: float | None = None) -> Event:
        """`next` for an event loop. An event that arrives for a cancelled task is kept for the next call."""
        timeout = None if timeout is None else check_seconds(timeout, "timeout")
        self._opened()
        return self._claimed(await self._ahead.adone(self._call, timeout), timeout)

    def fileno(self) -> int:
        """A descriptor that is readable while `next(timeout=0)` would return, as `Channel.fileno`."""
        if not self._closed:
            self._opened()
        return self._ahead.fileno(self._call)

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
        """Closes the watch. Waiting calls raise WatchClosed, and loops over it end. Idempotent."""
        if self._pid != os.getpid():
            self._end.detach()
            self._reset()
        with self._lock:
            self._closed = True
            ends = list(self._open)
            self._open.clear()
        _end_calls(ends, self._ahead)

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
            # In a forked child the open end belongs to the parent.
            self._end.detach()
            self._reset()
        with self._lock:
            if self._closed:
                raise self._was_closed()
            if not self._open:
                connection = self._broker._connection
                self._open.append(connection.ask(lambda core: core.open_watch(self._kinds, self._names)))
            return self._open[0]

    def _next(self, timeout: float | None) -> Event:
        try:
            return Event(*self._opened().next(timeout))
        except _core.StatusError as status:
            raise self._error_of(status, timeout) from None

    def _error_of(self, status: _core.StatusError, timeout: float | None) -> BrokerError:
        if self._closed:
            return self._was_closed()
        return self._nothing_occurred(timeout) if status.reason == _NO_EVENT else from_status(status)

    def _was_closed(self) -> WatchClosed:
        return WatchClosed(f"{self._text()} was closed here: make a new one with Broker.watch", 5, "WATCH_NOT_OPEN")

    def _nothing_occurred(self, timeout: float | None) -> BrokerTimeout:
        what = f"{self._text()} received no event within {timeout:g} s"
        return BrokerTimeout(f"{what}: pass a larger timeout=, or watch more kinds= or names=", 4, _NO_EVENT)

    def _text(self) -> str:
        of = f" of {', '.join(self._kinds)}" if self._kinds else ""
        return f"the watch{of} in namespace {self._broker.namespace!r}"

    @property
    def _call(self) -> Callable[[], Event]:
        """Waits for the next event, on the thread of `_ahead`."""
        return functools.partial(_next_of, weakref.ref(self))

    def _claimed(self, coming: Future[Event] | None, timeout: float | None) -> Event:
        if coming is None:
            raise self._nothing_occurred(timeout)
        return coming.result()


def _next_of(of: weakref.ref[Watch]) -> Event:
    """Holds no Watch while it waits, so that one that nobody uses any more is closed."""
    watch = of()
    if watch is None:
        raise WatchClosed("the watch was dropped here", reason="WATCH_NOT_OPEN")
    end = watch._opened()
    del watch
    try:
        return Event(*end.next(None))
    except _core.StatusError as status:
        watch = of()
        raise (from_status(status) if watch is None else watch._error_of(status, None)) from None


def _end_calls(ends: list[_core.WatchEnd], ahead: Ahead[Event]) -> None:
    """Ends the calls that wait in it."""
    ahead.stop()
    for end in ends:
        try:
            end.close()
        except _core.StatusError:
            continue  # if the broker has ended, so have the calls


autograph.mark_module(__name__)
