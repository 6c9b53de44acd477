# SPDX-License-Identifier: Apache-2.0
"""Finds the directory of the broker, and starts an embedded one if allowed and there is none.

Order: the argument, $ARRAYBRIDGE_ADDRESS, the user's runtime directory, /run/arraybridge,
$NVIDIA_DRA_LOCAL_IPC_DIR/arraybridge, then autostart. An explicit address is never replaced by another broker.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

from arraybridge.broker import child
from arraybridge.errors import BrokerUnavailable, exhausted_by, limits_of_process

Start = Literal["auto", "never", "private"]

SYSTEM_DIRECTORY: Final = "/run/arraybridge"
_START: Final = 'run `arraybridged`, pass the address of a broker, or use start="auto", which starts one'
_log = logging.getLogger("arraybridge")


class Found(NamedTuple):
    """A broker's address, and its kind."""

    address: str
    embedded: bool  # may be started again after it has ended
    end: Callable[[], None] | None  # ends a private broker
    started: float | None = None  # when this process started it, as time.monotonic has it


def find(address: str | None, start: Start) -> Found:
    """The broker to use; starts one if needed.

    Raises:
        BrokerUnavailable: there is none, and starting one is forbidden or failed.
        OutOfDescriptors: this process has no descriptor left for the search.
    """
    try:
        return _found(address, start)
    except OSError as error:
        lack = exhausted_by(error, "the search for a broker failed")
        if lack is None:
            raise
        raise lack from error


def _found(address: str | None, start: Start) -> Found:
    if start == "private":
        return _start_private()
    named = address or os.environ.get("ARRAYBRIDGE_ADDRESS")
    if named:
        return Found(named, embedded=False, end=None)
    own = _own_directory()
    if own.trusted and is_listening(own.path):
        _log.info("connected to the broker of this user")
        return Found(str(own.path), embedded=True, end=None)
    standing = _standing()
    if standing is not None:
        _log.info("connected to the system broker")
        return Found(str(standing), embedded=False, end=None)
    # Checked only now: in a shared directory any user can take the name, and would hide the system's broker from this
    # user.
    if own.refusal:
        raise BrokerUnavailable(f"no broker is running, and none can be started: {own.refusal}", code=14)
    if start == "never":
        none = f'no broker is running in {own.path} or {SYSTEM_DIRECTORY}, and start="never" forbids to start one'
        raise BrokerUnavailable(f"{none}: {_START}", code=14)
    return _start_embedded()


def way_to_start(address: str, requested: str | None, start: Start) -> str:
    """The remedy if no daemon answers at an address.

    Args:
        requested, start: as in `find`, which found the address.
    """
    if start == "private":
        return 'this private broker has ended with its shares: make a new Broker(start="private")'
    directory = Path(address).parent if address.endswith(".sock") else Path(address)
    there = f"start one there with `arraybridged --directory {directory}`"
    if requested is None and not os.environ.get("ARRAYBRIDGE_ADDRESS"):
        return there
    other = "unset $ARRAYBRIDGE_ADDRESS" if requested is None else "pass no address"
    return f"{there}, or {other}: Broker() finds or starts one"


def is_listening(address: str | Path) -> bool:
    """True if a daemon accepts connections at this directory or socket. Does not wait if its queue is full."""
    try:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        lack = exhausted_by(error, "the search for a broker failed")
        if lack is None:
            raise
        raise lack from error
    with made as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(_socket_of(Path(address))))
        except BlockingIOError:
            return True
        except OSError:
            return False
    return True


def _socket_of(address: Path) -> Path:
    return address / "lifeline.sock" if address.is_dir() else address


def _standing() -> Path | None:
    """The system's broker. If it exists and refuses, this is an error: a unit may be restarting, and a second broker
    would race.
    """
    shared = os.environ.get("NVIDIA_DRA_LOCAL_IPC_DIR")
    candidates = [Path(SYSTEM_DIRECTORY), *([Path(shared) / "arraybridge"] if shared else [])]
    for directory in candidates:
        if not (directory / "lifeline.sock").exists():
            continue
        if is_listening(directory):
            return directory
        silent = f"the system's broker does not answer on its socket in {directory}"
        raise BrokerUnavailable(f"{silent}: `arraybridgectl doctor` looks for the cause", code=14)
    return None


_OTHER_DIRECTORY: Final = "remove it, or set $XDG_RUNTIME_DIR to a directory of this user with mode 0700"


class _Own(NamedTuple):
    """The directory of this user's broker."""

    path: Path
    trusted: bool  # it exists, and no other user can have put a socket there
    refusal: str = ""  # why no broker is started there


def _runtime_directory() -> str:
    """$XDG_RUNTIME_DIR; empty if unset. A relative path is ignored (XDG Base Directory Specification)."""
    directory = os.environ.get("XDG_RUNTIME_DIR", "")
    return directory if os.path.isabs(directory) else ""


def _own_directory() -> _Own:
    runtime = _runtime_directory()
    try:
        path = Path(runtime) / "arraybridge" if runtime else Path(tempfile.gettempdir()) / f"arraybridge-{os.getuid()}"
        str(path).encode()
    except FileNotFoundError as error:
        if exhausted_by(error, "") is not None:  # also without descriptors
            raise
        what = "there is no writable temporary folder; set $XDG_RUNTIME_DIR to a directory of this user with mode 0700"
        return _Own(Path("arraybridge"), trusted=False, refusal=what + limits_of_process())
    except UnicodeEncodeError:
        what = f"the directory for this user's broker, {os.fsencode(path)!r}, is no UTF-8 text; {_OTHER_DIRECTORY}"
        return _Own(path, trusted=False, refusal=what)
    try:
        if runtime and (refusal := _foreign(runtime)):
            return _Own(path, trusted=False, refusal=refusal)
        found = path.lstat()
    except FileNotFoundError:
        return _Own(path, trusted=False)
    except OSError as error:
        what = f"the directory for this user's broker, {path}: {error.strerror}; {_OTHER_DIRECTORY}"
        return _Own(path, trusted=False, refusal=what)
    trusted = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    if not trusted or found.st_mode & 0o077:
        what = f"the directory for this user's broker, {path}, belongs to another user or is open to others; {_OTHER_DIRECTORY}"
        return _Own(path, trusted, refusal=what)
    return _Own(path, trusted=True)


def _foreign(runtime: str) -> str:
    """Why this user cannot trust a runtime directory: its owner could swap what is in it. "": it is this user's own."""
    found = os.stat(runtime)
    if not stat.S_ISDIR(found.st_mode) or (found.st_uid == os.getuid() and not found.st_mode & 0o022):
        return ""
    what = f"$XDG_RUNTIME_DIR, {runtime}, belongs to another user (su without -, sudo -E) or is open to others"
    return f"{what}: unset it, or set it to a directory of this user with mode 0700"


def _made_own_directory() -> Path:
    path = _own_directory().path
    try:
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # whatever the umask
    except FileExistsError:
        pass  # whether it is a directory is checked below
    except OSError as error:
        what = f"the directory for this user's broker could not be created, {path}: {error.strerror}; {_OTHER_DIRECTORY}"
        raise BrokerUnavailable(what, code=14) from error
    own = _own_directory()
    if own.refusal or not own.trusted:
        raise BrokerUnavailable(own.refusal or f"the directory for this user's broker, {path}, was removed: call again", code=14)
    return own.path


def _start_embedded() -> Found:
    _check_allowed()
    directory = _made_own_directory()
    # A second process waits here, and finds the daemon of the first.
    started = None
    with _locked(directory / "embedded.lock"):
        if not is_listening(directory):
            child.start(directory)
            started = time.monotonic()
            _log.info("started an embedded broker")
    return Found(str(directory), embedded=True, end=None, started=started)


def _start_private() -> Found:
    _check_allowed()
    try:
        directory = Path(tempfile.mkdtemp(prefix="arraybridge-"))
    except FileNotFoundError as error:
        if exhausted_by(error, "") is not None:
            raise
        what = "no private broker can be started: there is no writable temporary folder; set $TMPDIR to one"
        raise BrokerUnavailable(f"{what}{limits_of_process()}", code=14) from error
    try:
        directory.chmod(0o700)  # whatever the umask
        private = child.Private(directory)
    except BaseException:  # also on Ctrl-C
        shutil.rmtree(directory, ignore_errors=True)
        raise
    _log.info("started a private broker")
    return Found(str(directory), embedded=False, end=private.end)


def _check_allowed() -> None:
    if os.environ.get("ARRAYBRIDGE_START") == "never":
        none = "no broker is running, and ARRAYBRIDGE_START=never forbids to start one"
        raise BrokerUnavailable(f"{none}: run `arraybridged`, or unset $ARRAYBRIDGE_START", code=14)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    deadline = time.monotonic() + child.READY_SECONDS
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        while not _lock_now(descriptor):
            if time.monotonic() > deadline:
                what = f"another process has been starting the broker for more than {child.READY_SECONDS:g} s ({path})"
                raise BrokerUnavailable(f"{what}: call again, or end that process", code=14)
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _lock_now(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
