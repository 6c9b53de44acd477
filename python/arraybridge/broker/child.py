# SPDX-License-Identifier: Apache-2.0
"""A child is a daemon that this process started. An embedded one outlives it; a private one ends with its Broker.

Each runs under a keeper (arraybridged --keeper), so a crash of the daemon loses nothing. $ARRAYBRIDGE_KEEPER "off" starts
it without one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import time
import weakref
from pathlib import Path
from typing import Final

from arraybridge import _bin
from arraybridge.errors import BrokerUnavailable, exhausted_by, limits_of_process

READY_SECONDS: Final = 10.0
END_SECONDS: Final = 2.0
# A service manager addresses these to the process that it started, not to children: the daemon would report to it that a
# hanging application lives, or take sockets that are not its own.
_OF_A_SERVICE: Final = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "FDSTORE"}


class _Daemon(subprocess.Popen[bytes]):
    """A process that may outlive this one, so Popen's ResourceWarning is suppressed."""

    def __del__(self) -> None:
        return None

    def kill_all(self) -> None:
        """Kills and reaps the keeper, and the daemon with it: they are a process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()


# Kept to be reaped: private daemons at their end, embedded ones when another is started.
children: list[_Daemon] = []


def _pipe() -> tuple[int, int]:
    """Avoids the numbers of standard descriptors, which a process that has closed one would get: the daemon uses those
    numbers itself.
    """
    read, write = os.pipe()
    try:
        first = fcntl.fcntl(read, fcntl.F_DUPFD_CLOEXEC, 3)
        try:
            return first, fcntl.fcntl(write, fcntl.F_DUPFD_CLOEXEC, 3)
        except OSError:
            os.close(first)
            raise
    finally:
        os.close(read)
        os.close(write)


def start(directory: Path, *flags: str, keep: tuple[int, ...] = ()) -> _Daemon:
    """Starts a daemon in a session (and so a process group) of its own, and returns when it is ready.

    It inherits only the descriptors in `keep`. $ARRAYBRIDGE_LINGER ("5m", "0s"): how long it stays without sessions
    while named arrays are unread.

    Raises:
        BrokerUnavailable: it could not be started or did not get ready; the message has the reason. OutOfDescriptors,
            OutOfMemory: lack of these.
    """
    children[:] = [child for child in children if child.poll() is None]
    try:
        ready, tell = _pipe()
    except OSError as error:
        lack = exhausted_by(error, "a broker cannot be started")
        if lack is None:
            raise
        raise lack from error
    record = directory / "arraybridged.log"
    try:
        keeper = [] if os.environ.get("ARRAYBRIDGE_KEEPER") == "off" else ["--keeper"]
        command = [_bin.path("arraybridged"), *keeper, "--directory", str(directory), "--embedded", "--ready-fd", str(tell)]
        linger = os.environ.get("ARRAYBRIDGE_LINGER")
        if linger:
            command += ["--linger", linger]
        with open(os.open(record, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as log:
            child = _Daemon(
                [*command, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(tell, *keep),
                cwd="/",
                env={name: value for name, value in os.environ.items() if name not in _OF_A_SERVICE},
                start_new_session=True,
            )
    except OSError as error:
        os.close(ready)
        lack = exhausted_by(error, "a broker cannot be started")
        if lack is not None:
            raise lack from error
        raise BrokerUnavailable(f"the broker could not be started: {error.strerror or error}", code=14) from error
    finally:
        os.close(tell)
    children.append(child)
    is_ready, begun = False, time.monotonic()
    try:
        is_ready = gets_ready(ready)
    finally:  # also on Ctrl-C
        os.close(ready)
        if not is_ready:
            child.kill_all()
    if not is_ready:
        late = time.monotonic() - begun >= READY_SECONDS
        what = f"did not get ready within {READY_SECONDS:g} s" if late else "ended"
        linger = f" (--linger is $ARRAYBRIDGE_LINGER, {linger!r})" if linger else ""
        what = f"the broker was started in {directory} and {what}{linger}"
        tail = _tail(record)
        limits = "" if "RLIMIT_" in tail else limits_of_process()
        raise BrokerUnavailable(f"{what}; its last output says why: {tail}{limits}", code=14)
    return child


class Private:
    """A daemon that ends with this object's `end`, and with this process in any case.

    The daemon reads a pipe whose other end is here. A forked child closes its copy: it must not end its parent's
    broker.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._maker = os.getpid()
        standing, life = _pipe()
        try:
            self._child = start(directory, "--exit-when-idle", "0s", "--life-fd", str(standing), keep=(standing,))
        except BaseException:
            os.close(life)
            raise
        finally:
            os.close(standing)
        self._life = life
        _private.add(self)

    def end(self) -> None:
        """Returns when the daemon has ended and is reaped. Call it once."""
        if os.getpid() != self._maker:
            return
        self._child.terminate()
        try:
            self._child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill_all()
        os.close(self._life)
        shutil.rmtree(self._directory, ignore_errors=True)

    def after_fork(self) -> None:
        """Called in a forked child."""
        os.close(self._life)


_private: weakref.WeakSet[Private] = weakref.WeakSet()


def _after_fork() -> None:
    for private in list(_private):
        private.after_fork()
    _private.clear()
    children.clear()


os.register_at_fork(after_in_child=_after_fork)


def gets_ready(descriptor: int) -> bool:
    deadline = time.monotonic() + READY_SECONDS
    poller = select.poll()  # select() supports no descriptor above 1023
    poller.register(descriptor, select.POLLIN)
    output = b""
    while b"\n" not in output:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            return False
        more = os.read(descriptor, 64)
        if not more:
            return False
        output += more
    return output.startswith(b"ready")


def _tail(record: Path) -> str:
    try:
        return record.read_bytes()[-500:].decode(errors="replace").strip() or "nothing"
    except OSError:
        return "nothing"
