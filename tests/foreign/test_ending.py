# SPDX-License-Identifier: Apache-2.0
"""Shutdown by an operator: one signal drains, a second one ends the daemon at once."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
from foreign_client import CTL, DAEMON, PATIENCE_S, Address, Daemon, eventually
from grpc_health.v1 import health_pb2, health_pb2_grpc
from test_reload import Manager, manager

__all__ = ["manager"]


class Unfinished:
    """A call whose request never comes: the daemon knows the call and cannot answer it."""

    def __init__(self, address: Address) -> None:
        self._over = threading.Event()
        self._channel = address.channel()
        call = self._channel.stream_unary("/arraybridge.v1.Broker/GetServerInfo")
        self._future = call.future(self._request())
        # One connection carries both in order, so an answer to this call shows that the other one has arrived.
        health_pb2_grpc.HealthStub(self._channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)

    def _request(self) -> Iterator[bytes]:
        self._over.wait()
        yield from ()

    def close(self) -> None:
        self._over.set()
        self._channel.close()


@pytest.fixture
def daemon(tmp_path: Path, manager: Manager) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "run").mkdir(mode=0o700)
    words = [str(DAEMON), "--directory", str(tmp_path / "run"), "--drain-timeout", "1h"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as daemon:
        assert manager.next()["READY"] == "1"
        yield daemon
        daemon.kill()


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_daemon_at_once(
    tmp_path: Path, daemon: subprocess.Popen[bytes], manager: Manager, again: signal.Signals
) -> None:
    call = Unfinished(Address(tmp_path / "run"))
    daemon.send_signal(signal.SIGTERM)
    assert manager.next()["STOPPING"] == "1"
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.wait(0.5)  # the call keeps the daemon running; it would end in an hour
    while daemon.poll() is None:
        daemon.send_signal(again)
        time.sleep(0.05)
    assert daemon.returncode == -again
    call.close()


def test_signals_in_quick_succession_count_as_one(tmp_path: Path, daemon: subprocess.Popen[bytes], manager: Manager) -> None:
    """The second signal of timeout(1) may come after the first has been handled."""
    call = Unfinished(Address(tmp_path / "run"))
    daemon.send_signal(signal.SIGTERM)
    assert manager.next()["STOPPING"] == "1"
    daemon.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        daemon.wait(0.5)
    call.close()
    assert daemon.wait(PATIENCE_S) == 0
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]


def test_two_different_signals_at_once_count_as_one(tmp_path: Path, daemon: subprocess.Popen[bytes], manager: Manager) -> None:
    """timeout(1) signals the process and then its group, which is not a second request."""
    daemon.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.pid, os.WSTOPPED)
    daemon.send_signal(signal.SIGTERM)
    daemon.send_signal(signal.SIGINT)
    daemon.send_signal(signal.SIGCONT)
    assert manager.next()["STOPPING"] == "1"
    assert daemon.wait(PATIENCE_S) == 0
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]


@pytest.mark.parametrize("waited_for", [False, True])
def test_the_log_tells_which_process_died(start: Callable[..., Daemon], tmp_path: Path, waited_for: bool) -> None:
    """Killed processes are told with name and number; those that end by themselves, or are asked to, are not."""
    if waited_for and tuple(map(int, platform.release().split(".")[:2])) < (6, 15):
        pytest.skip("before Linux 6.15 the kernel does not tell how a process ended that its parent has waited for")
    daemon = start("--log-format", "json")
    numpy.save(tmp_path / "frame.npy", numpy.zeros(10))
    holding = subprocess.Popen([CTL, "-H", daemon.directory, "put", tmp_path / "frame.npy", "--hold"], stdout=subprocess.PIPE)
    assert holding.stdout is not None and holding.stdout.readline()
    assert subprocess.run([CTL, "-H", daemon.directory, "get", "frame", tmp_path / "out.npy"]).returncode == 0
    assert subprocess.run([CTL, "-H", daemon.directory, "get", "nothing", tmp_path / "out2.npy"]).returncode != 0
    watching = subprocess.Popen([CTL, "-H", daemon.directory, "watch"])
    time.sleep(0.5)
    watching.send_signal(signal.SIGINT)
    watching.wait()
    holding.kill()
    if waited_for:
        holding.wait()

    def died() -> list[dict[str, str]]:
        return [line for line in map(json.loads, daemon.log.read_text().splitlines()) if line.get("event") == "session_died"]

    eventually("it is told", died)
    holding.wait()
    (line,) = died()
    assert (line["level"], line["process_id"], line["client"]) == ("info", str(holding.pid), "arraybridgectl")
    assert f"arraybridgectl (process {holding.pid}) of uid {os.getuid()} was killed by signal 9" in line["message"]
