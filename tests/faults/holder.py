# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the service manager's descriptor store: it holds what the daemon stores, and starts the next daemon."""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import PATIENCE_S

DESCRIPTORS_MAX = 253  # of one datagram; the kernel's limit
KCMP = {"x86_64": 312, "aarch64": 272}[platform.machine()]  # the system call's number


def is_same_file(one: int, other: int) -> bool:
    """Whether both descriptors refer to one open file."""
    return bool(ctypes.CDLL(None).syscall(KCMP, os.getpid(), os.getpid(), 0, one, other) == 0)


# Executes the daemon with these descriptors from 3 on, as a service manager does. $LISTEN_PID is the daemon's own.
PASS_ON = """
import fcntl, os, sys
descriptors = [int(each) for each in sys.argv[1].split(",") if each]
moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 3 + len(descriptors)) for each in descriptors]
for number, each in enumerate(moved, 3):
    os.dup2(each, number, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(moved)))
os.execv(sys.argv[2], sys.argv[2:])
"""


class Holder:
    """Starts daemons one after another; each receives the entries that are stored, the newest first, as systemd 252 does.

    Nothing is read while no method runs, so a test decides when datagrams are handled. `entries_max`: what exceeds it is
    dropped silently, and so is an open file that is stored already, under whatever name: as by systemd.
    """

    def __init__(self, folder: Path, command: list[str], entries_max: int = 8192, environment: dict[str, str] | None = None) -> None:
        self.command = command
        self.entries_max = entries_max
        self.environment = environment or {}
        self.entries: list[tuple[str, int, bool]] = []  # name, descriptor, whether it is dropped on hang-up
        self.said: list[dict[str, str]] = []  # what the daemon told the manager
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.path = folder / "notify"
        self.socket.bind(str(self.path))
        self.log = folder / "daemon.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def names(self) -> list[str]:
        return [name for name, _, _ in self.entries]

    def start(self) -> None:
        """Starts the next daemon and handles its datagrams until it is ready."""
        self.drop_hung_up()
        self.said.clear()
        passed = self.entries[::-1]
        descriptors = [descriptor for _, descriptor, _ in passed]
        variables = {
            "NOTIFY_SOCKET": str(self.path),
            "FDSTORE": str(self.entries_max),
            "LISTEN_FDNAMES": ":".join(name for name, _, _ in passed),
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PASS_ON, ",".join(map(str, descriptors)), *self.command],
                pass_fds=descriptors,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment, **variables},
            )
        self.run_until(lambda: any(said.get("READY") == "1" for said in self.said))

    def run_until(self, done: object) -> None:
        """Handles datagrams until done() is true. The daemon must not end before."""
        assert callable(done) and self.process is not None
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            readable, _, _ = select.select([self.socket], [], [], 0.05)
            if readable:
                self.handle()
            assert self.process.poll() is None, f"the daemon ended with {self.process.returncode}:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"it does not happen:\n{self.log.read_text()}"

    def during(self, action: Callable[[], object]) -> None:
        """Handles datagrams while `action` runs on another thread."""
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(action)
            self.run_until(running.done)
            running.result()

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Ends the daemon. Its datagrams outlive it, so they are handled before it is reaped. Returns its exit status."""
        assert self.process is not None
        os.kill(self.pid, number)
        deadline = time.monotonic() + PATIENCE_S
        while os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            readable, _, _ = select.select([self.socket], [], [], 0.01)
            if readable:
                self.handle()
            assert time.monotonic() < deadline, "the daemon does not end"
        while select.select([self.socket], [], [], 0)[0]:
            self.handle()
        return self.process.wait()

    def handle(self) -> None:
        """Handles one datagram."""
        size = socket.CMSG_SPACE(12) + socket.CMSG_SPACE(DESCRIPTORS_MAX * 4)
        data, control, _, _ = self.socket.recvmsg(65536, size)
        descriptors = array.array("i")
        sender = 0
        for level, kind, value in control:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(value[: len(value) // 4 * 4])
            elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                sender = int.from_bytes(value[:4], sys.byteorder)
        if sender == self.pid:
            self._obey(dict(line.split("=", 1) for line in data.decode().splitlines()), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _obey(self, said: dict[str, str], descriptors: array.array[int]) -> None:
        name = said.get("FDNAME", "stored")
        if said.get("FDSTORE") == "1":
            while descriptors:
                self._store(name, descriptors.pop(0), said.get("FDPOLL") != "0")
        elif said.get("FDSTOREREMOVE") == "1":
            self._close(lambda entry: entry[0] == name)
        elif said.get("BARRIER") != "1":
            self.said.append(said)

    def _store(self, name: str, descriptor: int, drops_on_hangup: bool) -> None:
        if len(self.entries) >= self.entries_max or any(is_same_file(descriptor, each) for _, each, _ in self.entries):
            os.close(descriptor)
            return
        self.entries.append((name, descriptor, drops_on_hangup))

    def drop_hung_up(self) -> None:
        """Drops the lifelines of clients that have ended."""

        def hung_up(entry: tuple[str, int, bool]) -> bool:
            poll = select.poll()
            poll.register(entry[1], 0)
            return entry[2] and bool(poll.poll(0))

        self._close(hung_up)

    def drop_all(self) -> None:
        """As `systemctl stop`."""
        self._close(lambda entry: True)

    def _close(self, chosen: object) -> None:
        assert callable(chosen)
        gone = [entry for entry in self.entries if chosen(entry)]
        self.entries = [entry for entry in self.entries if entry not in gone]
        for _, descriptor, _ in gone:
            os.close(descriptor)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.kill()
        self.drop_all()
        self.socket.close()
