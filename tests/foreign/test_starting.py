# SPDX-License-Identifier: Apache-2.0
"""The start of daemon and tool with invalid descriptors, and without standard descriptors."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foreign_client import CTL, DAEMON, PATIENCE_S, Daemon, Session, eventually

CLOSED = ("sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh")
NOTHING = ["/dev/null"] * 2  # output and error; 0 may be an eventfd that gRPC has tested before main


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "broker"


def refusal(directory: Path, *flags: str, **more: tuple[int, ...]) -> str:
    """The error of a daemon that does not start."""
    done = subprocess.run(
        [DAEMON, "--directory", directory, "--exit-when-idle", "100ms", *flags],
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        **more,
    )
    assert done.returncode == 2, done.stderr
    assert not directory.exists(), "it checks its flags before it creates anything"
    return done.stderr


def standard_descriptors(process: int) -> list[str]:
    return [os.readlink(f"/proc/{process}/fd/{number}") for number in range(3)]


@pytest.mark.parametrize("flag", ["--ready-fd", "--life-fd"])
@pytest.mark.parametrize("number", [3, 4, 8, 77])
def test_a_descriptor_that_was_not_passed_is_refused(directory: Path, flag: str, number: int) -> None:
    """The number would soon be that of a descriptor of the daemon: a lock, a door, or its signalfd."""
    assert refusal(directory, flag, str(number)) == f"arraybridged: {flag}: {number} is not an open descriptor\n"


def test_one_descriptor_cannot_have_two_uses(directory: Path) -> None:
    read, write = os.pipe()
    try:
        said = refusal(directory, "--ready-fd", str(write), "--life-fd", str(write), pass_fds=(write,))
    finally:
        os.close(read)
        os.close(write)
    assert said == f"arraybridged: --life-fd: {write} is also the value of --ready-fd\n"


@pytest.mark.parametrize("flag", ["--ready-fd", "--life-fd"])
def test_a_passed_listening_socket_is_not_a_starters_descriptor(directory: Path, flag: str) -> None:
    script = 'exec 3<>"$1"; shift; LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=lifeline exec "$@"'
    command = ["sh", "-c", script, "sh", os.devnull, str(DAEMON), "--directory", str(directory), flag, "3"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert f"{flag}: 3 is a listening socket of the service manager" in done.stderr


def test_the_ready_descriptor_cannot_be_standard_error(directory: Path) -> None:
    assert refusal(directory, "--ready-fd", "2") == "arraybridged: --ready-fd: 2 is standard error, which receives the log\n"


def test_an_idle_daemon_stays_while_named_arrays_are_unread(directory: Path, open_session: Callable[..., Session]) -> None:
    daemon = Daemon(directory, "--exit-when-idle", "100ms", "--linger", "60s")
    first = open_session(daemon)
    first.publish("frame", b"unread")
    assert first.call("GetStats").unread_shares == 1
    first.close()
    time.sleep(1)
    assert daemon.process.poll() is None, daemon.log.read_text()
    reader = open_session(daemon)
    info = reader.call("GetServerInfo")
    assert (info.exit_when_idle_ms, info.linger_ms) == (100, 60_000)
    reader.call("Acquire", namespace="default", shares=[{"name": "frame"}])
    assert reader.call("GetStats").unread_shares == 0
    reader.close()
    assert daemon.process.wait(PATIENCE_S) == 0


def test_its_patience_with_unread_arrays_ends(directory: Path, open_session: Callable[..., Session]) -> None:
    daemon = Daemon(directory, "--exit-when-idle", "50ms", "--linger", "1s")
    session = open_session(daemon)
    session.publish("frame", b"unread")
    session.publish("gone", b"unread")
    session.call("Withdraw", namespace="default", shares=[{"name": "gone"}])
    assert session.call("GetStats").unread_shares == 1
    session.close()
    began = time.monotonic()
    assert daemon.process.wait(PATIENCE_S) == 0
    assert time.monotonic() - began > 0.8


@pytest.fixture
def readied(directory: Path) -> Iterator[subprocess.Popen[str]]:
    command = [DAEMON, "--directory", directory, "--ready-fd", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as daemon:
        yield daemon
        daemon.terminate()
        assert daemon.wait(PATIENCE_S) == 0


def test_standard_output_may_be_the_ready_descriptor(readied: subprocess.Popen[str]) -> None:
    assert readied.stdout is not None
    assert readied.stdout.read() == "ready\n"  # up to the end of file, because it is closed
    assert standard_descriptors(readied.pid)[1] == "/dev/null"


@pytest.fixture
def bare() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a program without standard descriptors."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(*command: object) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen([*CLOSED, *map(str, command)]))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def test_a_daemon_without_standard_descriptors_writes_into_no_other_descriptor(
    directory: Path, bare: Callable[..., subprocess.Popen[bytes]]
) -> None:
    daemon = bare(DAEMON, "--directory", directory)
    eventually("it serves", lambda: subprocess.run([CTL, "-H", directory, "ping"], capture_output=True).returncode == 0)
    assert standard_descriptors(daemon.pid)[1:] == NOTHING
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait(PATIENCE_S) == 0


def test_soft_limits_are_raised(directory: Path) -> None:
    prlimit = ["prlimit", "--nofile=64:512", "--fsize=1000000:100000000"]
    with subprocess.Popen([*prlimit, DAEMON, "--directory", directory, "--ready-fd", "1"], stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None and daemon.stdout.read() == b"ready\n"
        assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE) == (512, 512)
        assert resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE) == (100_000_000, 100_000_000)
        daemon.terminate()
        assert daemon.wait(PATIENCE_S) == 0


def test_a_tool_without_standard_descriptors_writes_into_no_connection(
    daemon: Daemon, bare: Callable[..., subprocess.Popen[bytes]]
) -> None:
    watch = bare(CTL, "-H", daemon.directory, "watch")
    eventually("it watches", lambda: watchers(daemon) == 1)
    assert standard_descriptors(watch.pid)[1:] == NOTHING


def watchers(daemon: Daemon) -> int:
    done = subprocess.run([CTL, "-H", daemon.directory, "-o", "json", "stats"], capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout)["watchers"])


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize(
    ("flags", "status", "what"), [([], 2, "/proc/meminfo cannot be read"), (["--host-capacity", "64MiB"], 1, "/proc/self/fd is opened")]
)
def test_a_daemon_without_proc_says_so(directory: Path, flags: list[str], status: int, what: str) -> None:
    """It finds the size of the memory there, and opens /proc/self/fd to pass memory on read-only."""
    command = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/proc", str(DAEMON), "--directory", str(directory), *flags]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert done.returncode == status and not directory.exists()
    assert f"{what}: No such file or directory: mount /proc" in done.stderr


@pytest.mark.parametrize("bytes_", [60 << 20, 200 << 20])
def test_a_daemon_without_address_space_names_the_limit(directory: Path, bytes_: int) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))

    done = subprocess.run(
        [DAEMON, "--directory", directory, "--backend", "host"], stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, preexec_fn=limit
    )
    assert done.returncode == 1 and not directory.exists()
    assert "RLIMIT_AS" in done.stderr and str(bytes_) in done.stderr and "ulimit -v" in done.stderr
