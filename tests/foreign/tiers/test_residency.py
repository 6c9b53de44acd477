# SPDX-License-Identifier: Apache-2.0
"""What arraybridgectl says of a share whose bytes are in memory, in a file, or in both."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from foreign_client import CTL, Daemon, Session, refused

OUT, IN, KEEP = range(2, 5)
CONTENT = bytes(range(256)) * 64


@pytest.fixture
def session(tmp_path: Path, start: Callable[..., Daemon], open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("ARRAYBRIDGED_TIERS__DIRECTORY", str(tmp_path / "files"))
    session = open_session(start("--cache", "0"))
    _, mapping = session.publish("m", CONTENT)
    mapping.close()
    return session


def told(session: Session, *words: str) -> str:
    command = [CTL, "-H", session.daemon.directory, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def listed(session: Session, *words: str) -> dict[str, str]:
    (row,) = csv.DictReader(io.StringIO(told(session, "-o", "csv", *words)))
    return row


def shown(session: Session) -> dict[str, str]:
    return {row["WHAT"]: row["VALUE"] for row in csv.DictReader(io.StringIO(told(session, "-o", "csv", "show", "m")))}


def test_the_column_follows_the_bytes(session: Session) -> None:
    def column() -> tuple[str, str]:
        row = listed(session, "ls")
        return row["RESIDENCY"], row["KIND"]

    assert column() == ("host", "memfd")
    session.call("Tier", action=OUT, name="m")
    assert column() == ("disk", "none")
    (share,) = json.loads(told(session, "-o", "json", "ls"))["shares"]
    assert share["share"]["handle"]["kind"] == "HANDLE_KIND_UNSPECIFIED"
    session.call("Tier", action=IN, name="m")
    assert column() == ("host", "memfd")
    assert "disk" not in told(session, "ls")


def test_show_says_what_file_there_is(session: Session, tmp_path: Path) -> None:
    assert shown(session)["residency"] == "host"
    assert "file" not in shown(session)
    session.call("Tier", action=KEEP, name="m")
    assert (shown(session)["residency"], shown(session)["file"]) == ("host", "beside the memory; a later broker finds it")
    session.call("Tier", action=OUT, name="m")
    assert (shown(session)["residency"], shown(session)["file"]) == ("disk", "has the bytes, stays, digest checked at the next get")
    (file,) = (each for each in (tmp_path / "files").iterdir() if each.name != "lock")
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    with refused(grpc.StatusCode.DATA_LOSS):
        session.call("Tier", action=IN, name="m")
    assert shown(session)["residency"] == "lost"
    assert "damaged" in shown(session)["file"]


def test_explain_says_that_the_file_is_read(session: Session) -> None:
    def why() -> str:
        first, *_ = csv.DictReader(io.StringIO(told(session, "-o", "csv", "explain", "m")))
        return first["WHY"]

    assert why() == "the kind of this share"
    session.call("Tier", action=OUT, name="m")
    assert "in a file: the next get reads them" in why()
