# SPDX-License-Identifier: Apache-2.0
"""An operator sends SIGHUP to a running daemon."""

from __future__ import annotations

import re
import signal
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from foreign_client import Daemon, Session, eventually, refused
from test_http import samples, url

CONFIG = """
[http]
listen = "127.0.0.1:0"
[memory.host]
capacity = "64MiB"
[namespace.default]
quota = "{quota}"
[limits]
shares_per_namespace = {shares}
[log]
level = "{level}"
format = "json"
"""


NOTHING_YET = "serving: 0 sessions, 0 shares, 0 B"


class Manager:
    """The service manager's end of $NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(60)

    def _heard(self) -> dict[str, str]:
        message = self.socket.recv(4096).decode()
        return dict(line.split("=", 1) for line in message.splitlines())

    def next(self) -> dict[str, str]:
        """The next message that is not only a status; a status is sent at every change."""
        while set(heard := self._heard()) == {"STATUS"}:
            pass
        return heard

    def status(self) -> str:
        while "STATUS" not in (heard := self._heard()):
            pass
        return heard["STATUS"]


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    yield manager
    manager.socket.close()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write(tmp_path / "arraybridged.toml")


def write(path: Path, quota: str = "50%", shares: int = 2, level: str = "info") -> Path:
    path.write_text(CONFIG.format(quota=quota, shares=shares, level=level))
    return path


@pytest.fixture
def daemon(start: Callable[..., Daemon], config: Path, manager: Manager) -> Daemon:
    daemon = start("--config", str(config))
    assert manager.next() == {"READY": "1", "STATUS": NOTHING_YET}
    return daemon


def reload(daemon: Daemon, manager: Manager) -> dict[str, str]:
    """The message to the manager at the end of the reload."""
    daemon.process.send_signal(signal.SIGHUP)
    began = manager.next()
    assert began["RELOADING"] == "1"
    assert int(began["MONOTONIC_USEC"]) > 0
    return manager.next()


def counted(daemon: Daemon) -> dict[str, float]:
    with urllib.request.urlopen(url(daemon) + "/metrics") as answer:
        return samples(answer.read().decode())


def test_limits_and_quotas_change_while_sessions_go_on(
    daemon: Daemon, config: Path, manager: Manager, open_session: Callable[..., Session]
) -> None:
    session = open_session(daemon)
    for name in ("one", "two"):
        session.publish(name, bytes(1000))
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "shares_per_namespace"):
        session.publish("three", bytes(1000))
    began = counted(daemon)["arraybridge_config_last_reload_success_timestamp_seconds"]
    write(config, quota="25%", shares=3)
    told = reload(daemon, manager)
    assert set(told) == {"READY", "STATUS"} and told["STATUS"].startswith("serving: 1 session, 2 shares, ")
    session.publish("three", bytes(1000))
    now = counted(daemon)
    assert now['arraybridge_config_reloads_total{result="ok"}'] == 1
    assert now["arraybridge_config_last_reload_success_timestamp_seconds"] > began
    assert [value for name, value in now.items() if name.startswith("arraybridge_namespace_quota_bytes")] == [16 << 20]
    assert "changed namespace.default.quota, limits.shares_per_namespace" in daemon.log.read_text()
    # A limit below the current use frees nothing and grants nothing more.
    write(config, quota="4KiB", shares=1)
    reload(daemon, manager)
    assert len(session.call("List", kind="SHARES").shares) == 3
    for size in (100, 1 << 20):
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, ""):
            session.publish("four", bytes(size))


def test_a_waiting_request_is_answered_when_the_quota_grows(
    daemon: Daemon, config: Path, manager: Manager, open_session: Callable[..., Session]
) -> None:
    session, reader = open_session(daemon), open_session(daemon)
    kept = session.call("Allocate", namespace="default", size=30 << 20)
    waiting = session.begin("Allocate", namespace="default", size=20 << 20, timeout_ms=60_000)
    eventually("the request waits", lambda: reader.call("GetStats").waiting == 1)
    write(config, quota="100%")
    reload(daemon, manager)
    assert waiting.result(60).handle.size == 20 << 20
    assert kept.handle.size == 30 << 20


def test_the_status_shows_current_counts(daemon: Daemon, config: Path, manager: Manager, open_session: Callable[..., Session]) -> None:
    def eventually_told(line: str) -> None:
        while not re.fullmatch(line, manager.status()):
            pass

    session = open_session(daemon)
    session.publish("one", bytes(1 << 20))
    eventually_told(r"serving: 1 session, 1 share, 1\.\d MiB")
    session.publish("two", bytes(1000))
    eventually_told(r"serving: 1 session, 2 shares, [1-9]\.\d MiB")
    # An unchanged status is not sent again, although it was checked twice meanwhile.
    manager.socket.settimeout(4.5)
    with pytest.raises(TimeoutError):
        manager.status()
    manager.socket.settimeout(60)
    config.write_text("no TOML")
    assert "; the last reload was refused: " in reload(daemon, manager)["STATUS"]
    session.close()
    eventually_told(r"serving: 0 sessions, \d shares, .*; the last reload was refused: .*")
    write(config)
    assert "; " not in reload(daemon, manager)["STATUS"]
    daemon.process.send_signal(signal.SIGTERM)
    assert manager.next() == {"STOPPING": "1", "STATUS": "draining: signal"}
    assert daemon.process.wait() == 0


def test_settings_that_need_a_restart_are_named_and_kept(daemon: Daemon, config: Path, manager: Manager) -> None:
    config.write_text(config.read_text().replace("64MiB", "32MiB") + "[server]\nspin_us = 7\n")
    assert reload(daemon, manager)["STATUS"] == NOTHING_YET
    log = daemon.log.read_text()
    assert "kept until a restart: server.spin_us, memory.host.capacity" in log
    assert "nothing changed" in log
    assert counted(daemon)['arraybridge_memory_capacity_bytes{device="host",uuid="",kind="memfd"}'] == 64 << 20


def test_the_level_of_the_log_changes(daemon: Daemon, config: Path, manager: Manager) -> None:
    write(config, level="error")
    reload(daemon, manager)
    assert "reloaded" not in daemon.log.read_text()
    write(config, level="info")
    reload(daemon, manager)
    assert daemon.log.read_text().count("reloaded: changed log.level") == 1


def violate(daemon: Daemon, times: int) -> int:
    """The log's lines about it."""
    before = daemon.log.read_text().count("lifeline cut: ")
    for _ in range(times):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hostile:
            hostile.connect(str(daemon.directory / "lifeline.sock"))
            hostile.send(b"no frame")
            while hostile.recv(4096):
                pass
    return daemon.log.read_text().count("lifeline cut: ") - before


def test_the_logs_rate_limit_changes(daemon: Daemon, config: Path, manager: Manager) -> None:
    text = config.read_text()

    def allowed(lines: int) -> None:
        config.write_text(text + f"rate_limit_per_s = {lines}\n")
        assert reload(daemon, manager)["STATUS"] == NOTHING_YET
        assert "changed log.rate_limit_per_s" in daemon.log.read_text()

    allowed(1)
    began = time.monotonic()
    told = violate(daemon, 50)
    assert 1 <= told <= time.monotonic() - began + 2, "one line for each second"
    allowed(100000)
    assert violate(daemon, 50) == 50
    dropped = sum(map(int, re.findall(r"\((\d+) more before\)", daemon.log.read_text())))
    assert dropped == 50 - told, "the other lines are counted"


@pytest.mark.parametrize(
    ("wrong", "where", "what"),
    [
        ("[limits]\nsessions = \n", "2:12", ""),
        ("[limits]\nshares_per_namespace = 9\nsessoins = 5\n", "3:1", "limits.sessoins is unknown"),
        ("[limits]\nshares_per_namespace = 9\nsessions = 0\n", "3:1", "limit sessions: must be more than 0"),
        ("limits.shares_per_namespace = 9\nlog.level = 'loud'\n", "2:5", "'loud' is not one of debug"),
    ],
    ids=["no TOML", "unknown key", "useless limit", "unknown word"],
)
def test_an_invalid_configuration_changes_nothing(
    daemon: Daemon, config: Path, manager: Manager, open_session: Callable[..., Session], wrong: str, where: str, what: str
) -> None:
    config.write_text(wrong)
    told = reload(daemon, manager)
    assert told["READY"] == "1"
    assert f"{config}:{where}: {what}" in told["STATUS"]
    assert f"{config}:{where}: {what}" in daemon.log.read_text()
    session = open_session(daemon)
    for name in ("one", "two"):
        session.publish(name, bytes(1000))
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "shares_per_namespace"):
        session.publish("three", bytes(1000))
    now = counted(daemon)
    assert (now['arraybridge_config_reloads_total{result="ok"}'], now['arraybridge_config_reloads_total{result="refused"}']) == (0, 1)
