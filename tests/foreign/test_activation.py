# SPDX-License-Identifier: Apache-2.0
"""Sockets that another process listens on, passed as by systemd: by a stand-in and by systemd's own program."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foreign_client import CTL, DAEMON, PATIENCE_S, Address, Session, eventually
from test_reload import NOTHING_YET, Manager, manager

__all__ = ["manager"]

# Executes the daemon with these descriptors from 3 on and with these names, as a service manager does.
STAND_IN = """
import os, sys
names, descriptors, command = sys.argv[1], [int(each) for each in sys.argv[2].split(",")], sys.argv[3:]
spare = [os.dup(each) for each in descriptors]
while min(spare) < 3 + len(spare):
    spare = [os.dup(each) for each in spare]
for number, each in enumerate(spare, 3):
    os.dup2(each, number, inheritable=True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(spare)), LISTEN_FDNAMES=names)
os.execv(command[0], command)
"""


def listening(path: Path, kind: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(path))
    listener.listen()
    return listener


class Sockets:
    """The sockets that the manager keeps while daemons start and end."""

    def __init__(self, directory: Path) -> None:
        self.lifeline = listening(directory / "lifeline.sock", socket.SOCK_SEQPACKET)
        self.broker = listening(directory / "broker.sock", socket.SOCK_STREAM)
        self.http = socket.create_server(("127.0.0.1", 0))

    def close(self) -> None:
        for each in (self.lifeline, self.broker, self.http):
            each.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def sockets(directory: Path) -> Iterator[Sockets]:
    made = Sockets(directory)
    yield made
    made.close()


@pytest.fixture
def admin(directory: Path) -> Iterator[socket.socket]:
    """Separate from the others, because a socket that listens there and is not passed counts as another daemon's."""
    made = listening(directory / "admin.sock", socket.SOCK_STREAM)
    yield made
    made.close()


def activate(directory: Path, names: str, *passed: socket.socket, flags: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    descriptors = [each.fileno() for each in passed]
    command = [sys.executable, "-c", STAND_IN, names, ",".join(map(str, descriptors))]
    return subprocess.Popen(
        [*command, str(DAEMON), "--directory", str(directory), "--log-format", "text", *flags],
        pass_fds=descriptors,
        stderr=subprocess.PIPE,
        text=True,
    )


def stop(daemon: subprocess.Popen[str]) -> str:
    daemon.send_signal(signal.SIGTERM)
    _, log = daemon.communicate(timeout=PATIENCE_S)
    assert daemon.returncode == 0, log
    return log


def test_a_client_that_connected_before_the_daemon_ran_is_served(
    directory: Path, sockets: Sockets, manager: Manager, open_session: Callable[..., Session]
) -> None:
    inodes = {path.name: path.stat().st_ino for path in directory.glob("*.sock")}
    early = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    early.connect(str(directory / "broker.sock"))
    # In another order than the daemon's: only the names matter.
    daemon = activate(directory, "http:broker:lifeline", sockets.http, sockets.broker, sockets.lifeline)
    assert manager.next()["READY"] == "1"
    session = open_session(Address(directory))
    session.publish("one", b"activated")  # its descriptor came by the passed lifeline
    assert session.read("one") == b"activated"
    port = sockets.http.getsockname()[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
        assert answer.read() == b"ready\n"
    assert early.recv(9)[3:4] == b"\x04"  # HTTP/2 SETTINGS: the server is at the other end
    early.close()
    session.close()
    stop(daemon)
    # The process that created the sockets removes them.
    assert {path.name: path.stat().st_ino for path in directory.glob("*.sock")} == inodes


def test_administrators_connect_by_the_admin_socket(
    directory: Path, sockets: Sockets, admin: socket.socket, manager: Manager, open_session: Callable[..., Session]
) -> None:
    """All sockets that a unit passes, through one stand-in; each is a different door."""
    doors = {"admin": admin, "lifeline": sockets.lifeline, "http": sockets.http, "broker": sockets.broker}
    daemon = activate(directory, ":".join(doors), *doors.values())
    assert manager.next()["READY"] == "1"
    session = open_session(Address(directory))
    session.publish("one", b"activated")
    assert session.read("one") == b"activated"
    with urllib.request.urlopen(f"http://127.0.0.1:{sockets.http.getsockname()[1]}/healthz") as answer:
        assert answer.read() == b"ok\n"
    tool = [str(CTL), "-H", str(directory)]
    shown = subprocess.run([*tool, "config", "show"], capture_output=True, text=True)
    assert (shown.returncode, str(directory) in shown.stdout) == (0, True), shown.stderr
    # The public door does not accept administration, although it is a gRPC door too.
    public = subprocess.run([*tool[:2], f"unix://{directory}/broker.sock", "config", "show"], capture_output=True, text=True)
    assert public.returncode != 0
    session.close()
    told = subprocess.run([*tool, "shutdown"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    _, log = daemon.communicate(timeout=PATIENCE_S)
    assert daemon.returncode == 0 and "requested by an administrator" in log
    # The manager's sockets were neither removed nor bound again.
    assert sorted(path.name for path in directory.glob("*.sock")) == ["admin.sock", "broker.sock", "lifeline.sock"]


def test_the_admin_socket_alone_may_be_passed(directory: Path, admin: socket.socket, manager: Manager) -> None:
    inode = (directory / "admin.sock").stat().st_ino
    daemon = activate(directory, "admin", admin)
    assert manager.next()["READY"] == "1"
    reloaded = subprocess.run([CTL, "-H", directory, "reload"], capture_output=True, text=True)
    assert reloaded.returncode == 0, reloaded.stderr
    stop(daemon)
    # The sockets that the daemon bound itself are removed.
    assert {path.name: path.stat().st_ino for path in directory.glob("*.sock")} == {"admin.sock": inode}


def test_the_next_daemon_takes_the_same_sockets(
    directory: Path, sockets: Sockets, manager: Manager, open_session: Callable[..., Session]
) -> None:
    for _ in range(2):
        daemon = activate(directory, "lifeline:broker", sockets.lifeline, sockets.broker)
        assert manager.next()["READY"] == "1"
        session = open_session(Address(directory))
        session.publish("one", b"x")
        session.close()
        stop(daemon)
        assert manager.next()["STOPPING"] == "1"
    # Between two daemons a client waits and is not refused.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
        waiting.connect(str(directory / "lifeline.sock"))


def test_the_daemon_binds_the_sockets_that_are_not_passed(directory: Path, manager: Manager, open_session: Callable[..., Session]) -> None:
    lifeline = listening(directory / "lifeline.sock", socket.SOCK_SEQPACKET)
    daemon = activate(directory, "lifeline", lifeline)
    assert manager.next()["READY"] == "1"
    open_session(Address(directory)).publish("one", b"x")
    stop(daemon)
    assert [path.name for path in directory.glob("*.sock")] == ["lifeline.sock"]
    lifeline.close()


@pytest.mark.parametrize(
    ("names", "passed", "why"),
    [
        ("gizmo", ["lifeline"], "a socket was passed as 'gizmo'; supported names are lifeline, broker, admin and http"),
        ("", ["lifeline"], "a socket was passed as ''"),
        ("lifeline", ["broker"], "'lifeline' is not a Unix socket of type seqpacket"),
        ("broker", ["lifeline"], "'broker' is not a Unix socket of type stream"),
        ("admin", ["lifeline"], "'admin' is not a Unix socket of type stream"),
        ("admin:admin", ["broker", "broker"], "two sockets were passed as 'admin'"),
        ("broker", ["http"], "'broker' is not a Unix socket of type stream"),
        ("http", ["broker"], "'http' is not a TCP socket"),
        ("broker:broker", ["broker", "broker"], "two sockets were passed as 'broker'"),
    ],
)
def test_a_wrong_socket_is_named(directory: Path, sockets: Sockets, names: str, passed: list[str], why: str) -> None:
    daemon = activate(directory, names, *(getattr(sockets, each) for each in passed))
    _, log = daemon.communicate(timeout=PATIENCE_S)
    assert daemon.returncode == 1
    assert why in log


def test_a_socket_that_does_not_listen_is_refused(directory: Path) -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    daemon = activate(directory, "lifeline", one)
    _, log = daemon.communicate(timeout=PATIENCE_S)
    assert daemon.returncode == 1
    assert "'lifeline' is not listening (Accept=no)" in log
    one.close()
    other.close()


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd-socket-activate is not installed")
def test_systemds_own_program_activates_it(directory: Path, tmp_path: Path, open_session: Callable[..., Session]) -> None:
    path = directory / "broker.sock"
    activator = subprocess.Popen(
        [
            "systemd-socket-activate",
            f"--listen={path}",
            "--fdname=broker",
            str(DAEMON),
            "--directory",
            str(directory),
            "--log-format",
            "text",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    # The path exists from bind on; in this table a listening socket has the flag __SO_ACCEPTCON.
    listening = re.compile(rf"^\S+ \S+ \S+ 00010000 .* {re.escape(str(path))}$", re.MULTILINE)
    eventually("it listens", lambda: listening.search(Path("/proc/net/unix").read_text()) is not None)
    session = open_session(Address(directory))
    assert session.call("GetStats").sessions == 1
    session.close()
    stop(activator)
    assert path.exists()


def test_the_watchdog_is_fed_while_the_daemon_works(
    directory: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch, open_session: Callable[..., Session]
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    words = [DAEMON, "--directory", directory, "--http", "127.0.0.1:0", "--log-format", "text"]
    daemon = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    heard = [manager.next() for _ in range(4)]
    assert {"READY": "1", "STATUS": NOTHING_YET} in heard
    assert heard.count({"WATCHDOG": "1"}) == 3
    assert daemon.stderr is not None
    port = next(found[1] for line in daemon.stderr if (found := re.search(r"http port (\d+)", line)))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        pings = re.search(r"^arraybridge_watchdog_pings_total (\d+)$", page.read().decode(), re.MULTILINE)
    assert pings is not None and int(pings[1]) >= 2  # the third ping may be sent before it is counted
    # A stopped daemon sends no ping.
    os.kill(daemon.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)  # until then it may still send one
    manager.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        while True:  # those that it sent before
            manager.next()
    os.kill(daemon.pid, signal.SIGCONT)
    manager.socket.settimeout(PATIENCE_S)
    assert manager.next() == {"WATCHDOG": "1"}
    stop(daemon)
