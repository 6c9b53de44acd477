# SPDX-License-Identifier: Apache-2.0
"""The metrics of files of shares: what they use, how moves ended, and why no more are written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from foreign_client import Daemon, Session, eventually, refused
from test_http import read

PREFIX = "arraybridge_tier_"
OUT, IN, KEEP, VERIFY = range(2, 6)
CONTENT = bytes(range(256)) * 64


def put(session: Session, name: str, content: bytes = CONTENT) -> None:
    _, mapping = session.publish(name, content)
    mapping.close()


def tier(daemon: Daemon) -> dict[str, float]:
    """The metrics that are not 0."""
    found = re.findall(rf"^{PREFIX}(\w+(?:\{{.*\}})?) (\S+)$", read(daemon, "/metrics"), re.MULTILINE)
    return {name: float(value) for name, value in found if float(value) != 0}


@pytest.fixture
def started(tmp_path: Path, start: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Daemon]:
    def with_files(**environment: str) -> Daemon:
        monkeypatch.setenv("ARRAYBRIDGED_TIERS__DIRECTORY", str(tmp_path / "files"))
        monkeypatch.setenv("ARRAYBRIDGED_TIERS__DISK_MAX", "1MiB")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return start("--http", "127.0.0.1:0", "--log-format", "json", "--cache", "0")

    return with_files


def test_moves_and_files_are_counted(started: Callable[..., Daemon], open_session: Callable[..., Session], tmp_path: Path) -> None:
    daemon = started()
    session = open_session(daemon)
    assert tier(daemon) == {"bytes_max": 1 << 20}
    put(session, "m")
    session.call("Tier", action=OUT, name="m")
    session.call("Tier", action=OUT, name="m")  # its bytes are there: no move
    found = tier(daemon)
    assert 0 < found.pop('move_seconds_total{move="out"}') < 60
    assert found == {
        "bytes": len(CONTENT),
        "bytes_max": 1 << 20,
        "files": 1,
        'moves_total{move="out",end="done"}': 1,
        'moved_bytes_total{move="out"}': len(CONTENT),
    }
    session.call("Tier", action=IN, name="m")
    found = tier(daemon)
    assert found['moves_total{move="in",end="done"}'] == 1
    assert found['moved_bytes_total{move="in"}'] == len(CONTENT)
    assert "files" not in found and "bytes" not in found
    session.call("Tier", action=KEEP, name="m")
    assert tier(daemon)['moves_total{move="keep",end="done"}'] == 1


def test_refusals_are_no_failures(started: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = started()
    session = open_session(daemon)
    put(session, "m")
    leased = session.call("Acquire", shares=[{"name": "m"}])
    with refused(grpc.StatusCode.FAILED_PRECONDITION):
        session.call("Tier", action=OUT, name="m")
    session.call("Release", leases=[leased.shares[0].lease])
    put(session, "large", bytes(2 << 20))
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "disk_max"):
        session.call("Tier", action=OUT, name="large")
    assert tier(daemon) == {"bytes_max": 1 << 20, 'moves_total{move="out",end="refused"}': 2}


def test_a_damaged_file_counts_once(started: Callable[..., Daemon], open_session: Callable[..., Session], tmp_path: Path) -> None:
    daemon = started()
    session = open_session(daemon)
    put(session, "m")
    session.call("Tier", action=OUT, name="m")
    (file,) = (each for each in (tmp_path / "files").iterdir() if each.name != "lock")
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    for action in (IN, VERIFY, IN):
        with refused(grpc.StatusCode.DATA_LOSS):
            session.call("Tier", action=action, name="m")
    found = tier(daemon)
    assert found["damaged_files_total"] == 1
    assert found['moves_total{move="in",end="failed"}'] >= 1


def test_a_tier_that_is_off_says_why(started: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = started(ARRAYBRIDGE_FAILPOINT="tier_write:error")
    session = open_session(daemon)
    put(session, "m")
    with refused(grpc.StatusCode.UNAVAILABLE):
        session.call("Tier", action=OUT, name="m")
    found = tier(daemon)
    (off,) = (name for name in found if name.startswith("off"))
    assert "No space left on device" in off and found[off] == 1
    assert found['moves_total{move="out",end="failed"}'] == 1


def test_a_directory_that_cannot_be_used_says_why(started: Callable[..., Daemon], tmp_path: Path) -> None:
    (tmp_path / "files").write_text("no directory")
    daemon = started()
    eventually("it serves", lambda: tier(daemon))
    (off,) = tier(daemon)
    assert off.startswith("off") and "cannot be opened: Not a directory" in off
