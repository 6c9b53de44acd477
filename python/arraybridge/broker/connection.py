# SPDX-License-Identifier: Apache-2.0
"""A Connection connects a Broker to its daemon: when it is first needed, and again after an embedded daemon has ended.

Thread-safe. It maps errors of the extension to the classes of `errors`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

from arraybridge import _core
from arraybridge.arguments import check_seconds
from arraybridge.broker import client_name, credentials, discovery
from arraybridge.errors import BrokerError, BrokerTimeout, from_status

T = TypeVar("T")
UNAVAILABLE: Final = 14
_DEADLINE_EXCEEDED: Final = 4
# Refusals of calls that were not executed and can be repeated: the session had ended, the memory was lost with an
# earlier session, or another thread published it first (then the bytes are placed again).
_ASK_AGAIN: Final = frozenset({"NOT_SENT", "PLACEMENT_LOST", "PLACEMENT_PUBLISHED", "MEMORY_LOST"})

_NOT_THERE: Final = frozenset({"SHARE_NOT_FOUND", "NAME_DID_NOT_COME"})
_NAMES_MAX: Final = 1000  # a broker with more shares is not searched for a similar name
_LIKENESS: Final = 0.7  # of two names, from 0 to 1, as difflib measures it


class Connection:
    """The connection to one namespace of one daemon.

    Args:
        address, start: as in `discovery.find`.
        timeout_s: seconds, for calls without a timeout of their own.
        token: None: read from the environment when it connects.
        direct_channels: whether channels may pass arrays without calls.
        client: None: `client_name.of_process` when it connects.

    Raises:
        InvalidRequest: `timeout_s` is not a number of seconds, or `client` is not a name.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None,
        namespace: str,
        start: discovery.Start,
        timeout_s: float,
        token: str | None = None,
        direct_channels: bool = True,
        client: str | None = None,
    ) -> None:
        if token is not None:
            credentials.stated(token)
        self._client = None if client is None else client_name.stated(client)
        self._token = token
        self.direct_channels: Final = direct_channels
        self._requested = None if address is None else os.fspath(address)
        self._start = start
        self._namespace = namespace
        self._timeout_s = check_seconds(timeout_s, "timeout_s")
        self._lock = threading.Lock()
        # The existing core; None: the next call connects. An attribute, because `Broker.get` reads it in every call.
        self.known_core: _core.Core | None = None
        self._inherited: _core.Core | None = None  # in a forked child until its first call: the parent's
        self._found: discovery.Found | None = None
        self._end: weakref.finalize[[], Connection] | None = None
        self._latest_address: str | None = None
        self._guessed: set[str] = set()  # names that were not there, with whose error the nearest one was looked for
        _connections.add(self)

    @property
    def requested(self) -> tuple[str | None, discovery.Start]:
        """The address and the start that it was made with."""
        return self._requested, self._start

    @property
    def address(self) -> str | None:
        """The address of the daemon; None while there is no connection."""
        found = self._found
        return None if found is None else found.address

    @property
    def latest_address(self) -> str | None:
        """The address of the daemon, also after `close`."""
        return self._latest_address

    def core(self) -> _core.Core:
        """The extension's connection; finds, or starts, the daemon.

        Raises:
            BrokerUnavailable: there is no daemon, and none may or could be started.
            InvalidRequest: the environment's token is invalid.
        """
        core = self.known_core
        if core is not None:
            return core
        with self._lock:
            if self.known_core is None:
                inherited = self._inherited
                self.known_core = self._connected() if inherited is None else inherited.with_client(self._named())
                self._inherited = None  # last: if this is interrupted, the next call does not look for another broker
            return self.known_core

    def _connected(self) -> _core.Core:
        token = credentials.stated(self._token)
        found = discovery.find(self._requested, self._start)
        if found.end is not None:
            self._end = weakref.finalize(self, found.end)
            # The daemon ends after this process: until then daemon threads wait, and would report its end.
            self._end.atexit = False
        self._found, self._latest_address = found, found.address
        client = self._named()
        return _core.Core(found.address, self._namespace, self._timeout_s, client, token=token, direct_channels=self.direct_channels)

    def _named(self) -> str:
        return client_name.of_process() if self._client is None else self._client

    def before_fork(self) -> None:
        """Starts a private daemon that no call has started yet, so that this process and its children have the same."""
        # Not while another thread connects: a fork waits for no thread.
        if self._start == "private" and self._latest_address is None and not self._lock.locked():
            with contextlib.suppress(BrokerError):  # the next call reports it
                self.core()

    def close(self) -> None:
        """Ends it, and a private daemon with it. The next call makes a new one.

        Raises:
            BrokerError: a put without waiting has failed. The connection is closed all the same.
        """
        with self._lock:
            core, self.known_core, self._inherited, self._found = self.known_core, None, None, None
            end, self._end = self._end, None
        try:
            if core is not None:
                _confirm(core)
        finally:
            if end is not None:
                end()

    def confirm(self) -> None:
        """Waits until the broker has processed all puts without waiting.

        Raises:
            BrokerError: one of them failed.
        """
        core = self.known_core
        if core is not None:
            _confirm(core)

    def ask(self, call: Callable[[_core.Core], T]) -> T:
        """The result of `call`; called a second time if a daemon was restarted, or an embedded one has ended."""
        core = self.core()
        try:
            return call(core)
        except _core.StatusError as status:
            self._check_repeatable(status, core)
        try:
            return call(self.core())
        except _core.StatusError as status:
            raise self.error_of(status) from None

    def error_of(self, status: _core.StatusError) -> BrokerError:
        """The error of a refused call; names the address if no daemon answers there."""
        error = from_status(status)
        found = self._found
        if status.reason == "NAME_DID_NOT_COME" and found is not None and found.embedded and found.started is not None:
            age = time.monotonic() - found.started
            error.message += f". This process started this broker {age:.0f} s ago: the name may be at another one"
        address = self._latest_address
        listening = True
        if status.code == UNAVAILABLE and address is not None:
            with contextlib.suppress(OSError):  # no descriptor is left for the question
                listening = discovery.is_listening(address)
        if not listening:
            what = error.message.partition("; arraybridged --directory")[0]  # the client's remedy, for programs in C++
            where = "" if repr(address) in what else f": {address!r}"
            error.message = f"{what}{where}; {discovery.way_to_start(str(address), self._requested, self._start)}"
        return error

    def put(
        self, maker: Callable[[Any], _core.View], name: str | None, array: Any, options: _core.PutOptions
    ) -> tuple[_core.ShareInfo | None, bool] | None:
        """`_core.put`. None: nothing was done.

        Raises:
            ShareExists, OutOfMemory, BrokerUnavailable: this put, or an earlier one that did not wait, failed.
        """
        core = self.known_core or self.core()
        try:
            return _core.put(core, maker, name, array, options)
        except _core.StatusError as status:
            self._check_repeatable(status, core)
        return self.ask(lambda core: _core.put(core, maker, name, array, options))

    def empty_array(self, shape: Any, dtype: tuple[str, tuple[int, int, int]], show: Callable[[_core.View], Any]) -> Any:
        """`_core.empty_array`. None: nothing was done.

        Raises:
            OutOfMemory, BrokerUnavailable: there is no memory.
        """
        return self.ask(lambda core: _core.empty_array(core, shape, dtype, show))

    def acquire(
        self,
        name: str,
        id: int = 0,
        generation: int = 0,
        private: bool = False,
        wait: float | None = None,
        broker_id: bytes = b"",
        note: str = "",
        newer_than: int = 0,
    ) -> tuple[_core.ShareInfo, list[_core.View]]:
        """A share and Views of its arrays. `private`: copy-on-write, in a mapping of their own.

        An `id` belongs to one run of one broker, `broker_id`. `note`: shown when the share is traced.

        Raises:
            ShareNotFound: no such share. BrokerTimeout: no such share within `wait` seconds.
            InvalidRequest: `wait` is not a number of seconds.
        """
        wait_s = 0.0 if wait is None else check_seconds(wait, "wait")
        core = self.known_core or self.core()
        try:
            try:
                return core.acquire(name, id, generation, private, wait_s, broker_id, note, newer_than)
            except _core.StatusError as status:
                self._check_repeatable(status, core)
            return self.ask(lambda core: core.acquire(name, id, generation, private, wait_s, broker_id, note, newer_than))
        except BrokerError as error:
            self._guess(error, name)
            raise

    def _guess(self, error: BrokerError, name: str) -> None:
        """Adds the nearest name of the namespace to the error of a name that is not there. Once for each name: a poll for
        it costs one call.
        """
        if error.reason not in _NOT_THERE or not name or name in self._guessed:
            return
        import difflib  # needed here alone

        if len(self._guessed) >= _NAMES_MAX:
            self._guessed.clear()
        self._guessed.add(name)
        core = self.known_core
        try:
            if core is None or core.stats()["shares"] > _NAMES_MAX:
                return
            names = [row["share"].name for row in core.list()]
        except _core.StatusError:  # the first error is the one to report
            return
        near = [] if name in names else difflib.get_close_matches(name, names, 1, _LIKENESS)
        if near:
            error.suggest(near[0])

    def settle(self) -> None:
        """Waits until published bytes are complete, so that they are not lost when this process ends."""
        core = self.known_core
        if core is None:
            return
        with contextlib.suppress(_core.StatusError):  # the daemon has ended, and the published shares with it
            core.settle()

    def acquire_many(
        self,
        wishes: Sequence[tuple[str, int, int, bytes]],
        private: bool,
        wait: float | None = None,
        note: str = "",
    ) -> list[tuple[_core.ShareInfo, list[_core.View]]]:
        """`acquire` for several, all or none. Each wish: (name, 0, 0, b""), or ("", id, generation, broker_id)."""
        wait_s = 0.0 if wait is None else check_seconds(wait, "wait")
        try:
            return self.ask(lambda core: core.acquire_many(wishes, private, wait_s, note))
        except BrokerError as error:
            self._guess(error, next((name for name, *_ in wishes if name and f"'{name}'" in error.message), ""))
            raise

    def note(self, info: _core.ShareInfo, note: str) -> None:
        """Replaces the note of an acquire. Does not wait."""
        core = self.known_core
        if core is not None:
            core.note(info, note)

    def outcome(self, error: BrokerTimeout, timeout_s: float) -> tuple[_core.ShareInfo | None, BrokerError | None]:
        """The share that a timed-out put has published after all, and no error; or the reason why it was not executed.

        Raises:
            BrokerTimeout: the broker has still not answered. BrokerUnavailable: the outcome is unknown.
            InvalidRequest: `timeout_s` is not a number of seconds.
        """
        wait_s = check_seconds(timeout_s, "timeout_s")
        try:
            outcome = self.core().outcome(error.code or _DEADLINE_EXCEEDED, error.message, error.reason, error.request, wait_s)
        except _core.StatusError as status:
            raise self.error_of(status) from None
        share, why_not = outcome
        return share, None if why_not is None else from_status(why_not)

    def confirm_after(self, error: BrokerError) -> NoReturn:
        """Raises `error`; its cause is the first error of puts without waiting, if there is one."""
        try:
            self.confirm()
        except BrokerError as more:
            raise error from more
        raise error

    def after_fork(self) -> None:
        """Called in a forked child: a thread of the parent may hold the lock and have left an unfinished connection."""
        self._lock = threading.Lock()
        self._inherited, self.known_core = self.known_core or self._inherited, None
        if self._inherited is None:
            self._found, self._end = None, None

    def _check_repeatable(self, status: _core.StatusError, core: _core.Core) -> None:
        """Returns if the call can be repeated: it was not executed, or an embedded daemon has ended."""
        found = self._found
        embedded = status.code == UNAVAILABLE and found is not None and found.embedded
        gone = embedded and found is not None and not discovery.is_listening(found.address)
        if not gone:
            if status.reason in _ASK_AGAIN:
                return
            raise self.error_of(status) from None
        with self._lock:
            if self.known_core is core:
                self.known_core = None
        _confirm(core)


def _confirm(core: _core.Core) -> None:
    try:
        core.confirm()
    except _core.StatusError as status:
        raise from_status(status) from None


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _before_fork() -> None:
    for connection in list(_connections):
        connection.before_fork()


def _after_fork() -> None:
    for connection in list(_connections):
        connection.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


@atexit.register
def _settle() -> None:
    failed: Exception | None = None
    for connection in list(_connections):
        connection.settle()
        try:
            connection.confirm()
        except BrokerError as error:
            failed = failed or error
    if failed is not None:
        raise failed  # no caller is left; the interpreter prints it
