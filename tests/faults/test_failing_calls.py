# SPDX-License-Identifier: Apache-2.0
"""System calls that fail once, or from one moment on: fault 26. The result is an error or a retry, never a crash or a leak.

strace is attached to a running daemon, or to a client, for the time of one session, and makes the n-th call of a kind fail. A
later session without failures must work, and the ledger be at its baseline.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import PATIENCE_S, Client, Daemon, Ledger, Refused, daemon_in, eventually

LONG = bool(os.environ.get("ARRAYBRIDGE_LONG"))
SEED = int(os.environ.get("ARRAYBRIDGE_SEED", random.SystemRandom().randrange(1 << 32)))
KINDS = 6  # of calls of each side in the quick suite, each with its first call and a later one; the long suite tries all
NUMBERS = range(1, 13)  # which of the calls fails
SESSION = (
    "put a 65536 1", "get a 1", "get a 1 private", "scribble", "check", "put a 65536 2 replace", "drop", "get a 2", "many 2 a",
    "list", "put large 20000000 4", "get large 4", "put s 65536 3 sealed", "get s 3", "open c receive", "open c send",
    "send c 4096 5 1000", "receive c 1000", "close c receive", "close c send", "drop", "flush", "withdraw a", "withdraw s",
    "withdraw large", "flush",
)  # fmt: skip
# Calls that a session always makes, with an error that the manual pages name for them.
IN_DAEMON = {
    "memfd_create": "ENOMEM", "ftruncate": "EIO", "fallocate": "ENOSPC", "mmap": "ENOMEM", "madvise": "ENOMEM", "fcntl": "EBUSY",
    "openat": "EMFILE", "fchmod": "EIO", "accept4": "EMFILE", "epoll_ctl": "ENOMEM", "epoll_wait": "EINTR", "sendmsg": "ENOBUFS",
    "sendto": "ENOBUFS", "recvfrom": "ENOMEM", "getsockopt": "ENOBUFS",
}  # fmt: skip
IN_CLIENT = {
    "socket": "EMFILE", "connect": "EAGAIN", "mmap": "ENOMEM", "newfstatat": "ENOMEM", "fcntl": "EINVAL", "poll": "EINTR",
    "sendto": "ENOBUFS", "recvmsg": "ENOMEM", "clone3": "EAGAIN", "eventfd2": "EMFILE", "openat": "EMFILE", "madvise": "ENOMEM",
}  # fmt: skip
SIGNALLED = ("epoll_wait", "poll")  # interrupted by signals now and then, not for ever
# A thread's first allocation maps a heap: a daemon that can map none for ever ends, as where its heap ends (test_failing_memory.py).
HEAPS = ("mmap", "daemon")

pytestmark = [
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
    pytest.mark.skipif(harness.SANITIZED, reason="a sanitizer's own calls would fail"),
]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A channel without ends awaits its next receiver for a second only."""
    with daemon_in(tmp_path / "broker", "--orphan-grace", "1s") as running:
        yield running


@contextlib.contextmanager
def failing(pid: int, call: str, error: str, when: str, trace: Path) -> Iterator[None]:
    """Meanwhile these calls of the process fail; `trace` has a line for each of them."""
    inject = f"inject={call}:error={error}:when={when}"
    command = ["strace", "-f", "-p", str(pid), "-o", str(trace), "-e", f"trace={call}", "-e", inject]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        line = tracer.stderr.readline()
        if "attached" not in line:
            tracer.kill()
            pytest.skip(f"strace cannot attach to a process here: {line.strip()}")
        threads = f"/proc/{pid}/task"
        eventually(
            "all threads are traced",
            lambda: all(is_traced(Path(threads, thread)) for thread in os.listdir(threads)),
        )
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=PATIENCE_S)


def is_traced(thread: Path) -> bool:
    try:
        return "TracerPid:\t0\n" not in (thread / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True  # it has ended


def tried(client: Client) -> None:
    """The session, in which any command may be refused; the client must answer each."""
    for line in SESSION:
        with contextlib.suppress(Refused):
            client.ask(line)


def works(client: Client) -> bool:
    """The client drops and withdraws what is left, and finds everything working. False: an answer was late."""
    for line in ("drop", "close c send", "close c receive", "flush"):
        with contextlib.suppress(Refused):
            client.ask(line)
    try:
        for name in client.insist("list").split():
            client.ask(f"withdraw {name}")
        for line in SESSION:
            client.ask(line)
    except Refused as error:
        if not error.is_late:
            raise
        return False
    return True


def cleaned(daemon: Daemon) -> None:
    """Another client withdraws what is left, and finds everything working."""
    client = daemon.client()
    for name in client.ask("list").split():
        client.ask(f"withdraw {name}")
    for line in SESSION:
        client.ask(line)
    client.leave()
    daemon.clients.remove(client)


def choices(calls: dict[str, str], side: str) -> list[Any]:
    """Each kind of call with its error, and which of them fails: "3" once, "3+" all from the third on."""
    chance = random.Random(f"{SEED} {side}")
    chosen = []
    for call in calls if LONG else chance.sample(list(calls), KINDS):
        whens = [
            f"{number}{later}" for number in NUMBERS for later in ("", "+") if not (later and (call in SIGNALLED or (call, side) == HEAPS))
        ]
        chosen.append(pytest.param(call, calls[call], whens if LONG else [whens[0], chance.choice(whens[1:])], id=call))
    return chosen


def check_injected(trace: Path, call: str, when: str) -> None:
    """The first call has failed; later ones may not have been made."""
    count = len(re.findall(r"\(INJECTED\)", trace.read_text()))
    print(f"{call} {when}: {count} failed")
    assert count > 0 or when not in ("1", "1+"), f"{call} is never made"


@pytest.mark.parametrize(("call", "error", "whens"), choices(IN_DAEMON, "daemon"))
def test_calls_of_the_daemon_fail(daemon: Daemon, ledger: Ledger, tmp_path: Path, call: str, error: str, whens: list[str]) -> None:
    """Fault 26 in the daemon: it lives, and the next session gets everything."""
    print(f"ARRAYBRIDGE_SEED={SEED}")
    for when in whens:
        trace = tmp_path / "trace"
        with failing(daemon.pid, call, error, when, trace):
            client = daemon.client(timeout_ms=500)
            with contextlib.suppress(Refused):
                tried(client)
            client.kill()
            daemon.clients.remove(client)
        assert daemon.process.poll() is None, f"{call} {when} ended the daemon:\n{daemon.log_text()}"
        check_injected(trace, call, when)
        cleaned(daemon)
        ledger.settle()


@pytest.mark.parametrize(("call", "error", "whens"), choices(IN_CLIENT, "client"))
def test_calls_of_a_client_fail(daemon: Daemon, ledger: Ledger, tmp_path: Path, call: str, error: str, whens: list[str]) -> None:
    """Fault 26 in a client: it answers every command, works again without failures, and leaves nothing behind."""
    print(f"ARRAYBRIDGE_SEED={SEED}")
    for when in whens:
        trace = tmp_path / "trace"
        client = daemon.client(timeout_ms=500)
        client.ask("kinds")
        with failing(client.pid, call, error, when, trace):
            try:
                tried(client)
            except EOFError as end:
                raise AssertionError(f"{call} {when} ended the client with {client.process.wait()}") from end
        check_injected(trace, call, when)
        eventually("everything works", lambda client=client: works(client))
        client.leave()
        daemon.clients.remove(client)
        ledger.settle()
