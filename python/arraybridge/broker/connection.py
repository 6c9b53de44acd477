"""A Connection is a Broker's way to its daemon: made on first need, and again when an embedded daemon has gone.

Thread-safe. It turns what the extension reports into the classes of `errors`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeVar

from arraybridge import _core
from arraybridge.arguments import check_seconds
from arraybridge.broker import credentials, discovery
from arraybridge.errors import BrokerError, BrokerTimeout, BrokerUnavailable, from_status

T = TypeVar("T")
UNAVAILABLE: Final = 14
_DEADLINE_EXCEEDED: Final = 4
# Refusals of a call that has done nothing yet, and of which a second attempt knows: the session had ended, the memory
# went with an earlier one, or another thread published it first (then the bytes are placed anew).
_ASK_AGAIN: Final = frozenset({"NOT_SENT", "PLACEMENT_LOST", "PLACEMENT_PUBLISHED"})


class Connection:
    """The way to one namespace of one daemon.

    Args:
        address, start: as `discovery.find` takes them.
        timeout_s: seconds, of every call that names none.
        token: None: what the environment says when it connects.
        direct_channels: whether channels may do without calls.

    Raises:
        InvalidRequest: `timeout_s` is no number of seconds.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None,
        namespace: str,
        start: discovery.Start,
        timeout_s: float,
        token: str | None = None,
        direct_channels: bool = True,
    ) -> None:
        if token is not None:
            credentials.stated(token)
        self._token = token
        self.direct_channels: Final = direct_channels
        self._asked = None if address is None else os.fspath(address)
        self._start = start
        self._namespace = namespace
        self._timeout_s = check_seconds(timeout_s, "timeout_s")
        self._lock = threading.Lock()
        # The core that exists already; None: the next call connects. An attribute, since `Broker.get` reads it every time.
        self.known_core: _core.Core | None = None
        self._found: discovery.Found | None = None
        self._end: weakref.finalize[[], Connection] | None = None
        self._latest_address: str | None = None
        _connections.add(self)

    @property
    def asked(self) -> tuple[str | None, discovery.Start]:
        """The address and the start that it was made with."""
        return self._asked, self._start

    @property
    def address(self) -> str | None:
        """Where the daemon is, or None while there is no connection."""
        found = self._found
        return None if found is None else found.address

    @property
    def latest_address(self) -> str | None:
        """Where the daemon is, or was before `close`."""
        return self._latest_address

    def core(self) -> _core.Core:
        """The extension's connection; finds, or starts, the daemon.

        Raises:
            BrokerUnavailable: none is there, and none may or could be started.
            InvalidRequest: the environment's token cannot be one.
        """
        core = self.known_core
        if core is not None:
            return core
        with self._lock:
            if self.known_core is None:
                token = credentials.stated(self._token)
                found = discovery.find(self._asked, self._start)
                if found.end is not None:
                    self._end = weakref.finalize(self, found.end)
                self._found, self._latest_address = found, found.address
                self.known_core = _core.Core(
                    found.address,
                    self._namespace,
                    self._timeout_s,
                    _client_name(),
                    token=token,
                    direct_channels=self.direct_channels,
                )
            return self.known_core

    def close(self) -> None:
        """Ends it, and a private daemon with it. The next call makes a new one.

        Raises:
            BrokerError: something that was put without waiting is not there. It is closed all the same.
        """
        with self._lock:
            core, self.known_core, self._found = self.known_core, None, None
            end, self._end = self._end, None
        try:
            if core is not None:
                _confirm(core)
        finally:
            if end is not None:
                end()

    def confirm(self) -> None:
        """Waits until the broker has taken what was put without waiting.

        Raises:
            BrokerError: something of it failed.
        """
        core = self.known_core
        if core is not None:
            _confirm(core)

    def ask(self, call: Callable[[_core.Core], T]) -> T:
        """What `call` answers; asked a second time if a daemon was restarted, or an embedded one has gone."""
        core = self.core()
        try:
            return call(core)
        except _core.StatusError as status:
            self._forgive(status, core)
        try:
            return call(self.core())
        except _core.StatusError as status:
            raise from_status(status) from None

    def put(self, view: _core.View, name: str, note: str = "") -> bool:
        """One array under a name, without waiting. False: nothing was done, it is published where it was born.

        Raises:
            ShareExists, OutOfMemory, BrokerUnavailable: this put, or an earlier one that nobody waited for, failed.
        """
        core = self.known_core or self.core()
        try:
            return core.put(view, name, note)
        except _core.StatusError as status:
            self._forgive(status, core)
        return self.ask(lambda core: core.put(view, name, note))

    def acquire(
        self,
        name: str,
        id: int = 0,
        generation: int = 0,
        private: bool = False,
        wait: float | None = None,
        broker_id: bytes = b"",
        note: str = "",
    ) -> tuple[_core.ShareInfo, list[_core.View]]:
        """A share and Views of its arrays. `private`: copy-on-write, in a mapping of their own.

        An `id` is of one life of one broker, `broker_id`. `note`: for who traces the share.

        Raises:
            ShareNotFound: no such share. BrokerTimeout: not even after `wait` seconds.
            InvalidRequest: `wait` is no number of seconds.
        """
        wait_s = 0.0 if wait is None else check_seconds(wait, "wait")
        core = self.known_core or self.core()
        try:
            return core.acquire(name, id, generation, private, wait_s, broker_id, note)
        except _core.StatusError as status:
            self._forgive(status, core)
        return self.ask(lambda core: core.acquire(name, id, generation, private, wait_s, broker_id, note))

    def settle(self) -> None:
        """Waits for what was published and is not there yet, so that nobody loses it when this process ends."""
        core = self.known_core
        if core is None:
            return
        with contextlib.suppress(_core.StatusError):  # the daemon has gone, and what was published with it
            core.settle()

    def acquire_many(
        self,
        wishes: Sequence[tuple[str, int, int, bytes]],
        private: bool,
        wait: float | None = None,
        note: str = "",
    ) -> list[tuple[_core.ShareInfo, list[_core.View]]]:
        """All or none, as `acquire` does one. Each wish: (name, 0, 0, b""), or ("", id, generation, broker_id)."""
        wait_s = 0.0 if wait is None else check_seconds(wait, "wait")
        return self.ask(lambda core: core.acquire_many(wishes, private, wait_s, note))

    def note(self, info: _core.ShareInfo, note: str) -> None:
        """What came of an acquire, instead of what was said with it. Does not wait."""
        core = self.known_core
        if core is not None:
            core.note(info, note)

    def outcome(self, error: BrokerTimeout, timeout_s: float) -> tuple[_core.ShareInfo | None, BrokerError | None]:
        """The share that a timed-out put has made all the same, and no error; or why what timed out was not done.

        Raises:
            BrokerTimeout: the broker has still not answered. BrokerUnavailable: nobody knows.
            InvalidRequest: `timeout_s` is no number of seconds.
        """
        wait_s = check_seconds(timeout_s, "timeout_s")
        try:
            told = self.core().outcome(error.code or _DEADLINE_EXCEEDED, error.message, error.reason, error.request, wait_s)
        except _core.StatusError as status:
            raise from_status(status) from None
        share, why_not = told
        return share, None if why_not is None else from_status(why_not)

    def confirm_after(self, error: BrokerError) -> NoReturn:
        """Raises `error`, caused by what else failed of what was put without waiting, if anything did."""
        try:
            self.confirm()
        except BrokerError as more:
            raise error from more
        raise error

    def after_fork(self) -> None:
        """In a forked child: its lock may be one that a thread of the parent holds, and what that thread was making."""
        self._lock = threading.Lock()
        if self.known_core is None:
            self._found, self._end = None, None

    def _forgive(self, status: _core.StatusError, core: _core.Core) -> None:
        """Returns if it is worth asking again: nothing was done yet, or an embedded daemon has gone."""
        found = self._found
        embedded = status.code == UNAVAILABLE and found is not None and found.embedded
        gone = embedded and found is not None and not discovery.is_listening(found.address)
        if not gone:
            if status.reason in _ASK_AGAIN:
                return
            raise from_status(status) from None
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


def _after_fork() -> None:
    for connection in list(_connections):
        connection.after_fork()


os.register_at_fork(after_in_child=_after_fork)


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
        raise failed  # nobody is left to be told: the interpreter prints it


def _client_name() -> str:
    script = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""
    return (script or "python").encode()[:60].decode(errors="ignore")
