# SPDX-License-Identifier: Apache-2.0
"""Lines for systemd's journal, sent to a stand-in socket, and the catalog that explains them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foreign_client import DAEMON, PATIENCE_S, ROOT, Daemon

CATALOG = ROOT / "deploy/systemd/journal.catalog"
TOPICS = ROOT / "daemon/service/telemetry/log_topic.h"
Fields = dict[str, str]


def parsed(datagram: bytes) -> Fields:
    """The fields of one entry, parsed as by the journal."""
    fields: Fields = {}
    while datagram:
        name, equals, rest = datagram.partition(b"=")
        if equals and b"\n" not in name:
            value, _, datagram = rest.partition(b"\n")
        else:
            name, _, rest = datagram.partition(b"\n")
            (size,) = struct.unpack_from("<Q", rest)
            value, datagram = rest[8 : 8 + size], rest[9 + size :]
        fields[name.decode()] = value.decode()
    return fields


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(PATIENCE_S)

    def until(self, event: str) -> Fields:
        while True:
            fields = parsed(self.socket.recv(1 << 20))
            if fields.get("ARRAYBRIDGE_EVENT") == event:
                return fields


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal")
    monkeypatch.setenv("ARRAYBRIDGED_LOG__JOURNAL", str(made.path))
    yield made
    made.socket.close()


def ids() -> dict[str, str]:
    return dict(re.findall(r'\{"(\w+)", "([0-9a-f]{32})"\}', TOPICS.read_text()))


def test_lines_are_entries_with_fields(journal: Journal, start: Callable[..., Daemon]) -> None:
    daemon = start("--log-format", "journald")
    serving = journal.until("serving")
    assert serving["MESSAGE"].startswith("serving ") and serving["MESSAGE"].endswith(" bytes of host memory")
    assert (serving["PRIORITY"], serving["SYSLOG_IDENTIFIER"]) == ("6", "arraybridged")
    assert (serving["MESSAGE_ID"], serving["ARRAYBRIDGE_DEVICE"]) == (ids()["serving"], "cpu")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rude:
        rude.connect(str(daemon.directory / "lifeline.sock"))
        rude.send(b"x")
        cut = journal.until("lifeline_cut")
    assert (cut["PRIORITY"], cut["ARRAYBRIDGE_UID"], cut["ARRAYBRIDGE_PROCESS_ID"]) == ("4", str(os.getuid()), str(os.getpid()))
    daemon.process.send_signal(signal.SIGTERM)
    assert journal.until("draining")["ARRAYBRIDGE_REASON"] == "signal"
    assert daemon.process.wait(PATIENCE_S) == 0
    assert daemon.log.read_text() == ""  # no line is logged twice


def test_auto_uses_the_journal_if_standard_error_is_the_journals(journal: Journal, tmp_path: Path) -> None:
    """As started by systemd: JOURNAL_STREAM identifies the file of standard error."""
    log = tmp_path / "log"
    with log.open("wb") as stream:
        found = os.fstat(stream.fileno())
        command = [DAEMON, "--directory", tmp_path / "ab", "--exit-when-idle", "10ms"]
        ours = {**os.environ, "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert subprocess.run(command, stderr=stream, env=ours, check=False).returncode == 0
        assert journal.until("draining")["ARRAYBRIDGE_REASON"] == "idle"
        assert log.read_text() == ""
        others = {**os.environ, "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"}
        assert subprocess.run(command, stderr=stream, env=others, check=False).returncode == 0
    assert '"event":"draining","reason":"idle","message":"draining: idle"' in log.read_text()


def test_a_missing_journal_is_an_error_only_if_it_is_configured(tmp_path: Path) -> None:
    nowhere = {**os.environ, "ARRAYBRIDGED_LOG__JOURNAL": str(tmp_path / "nowhere")}
    asked = [DAEMON, "--directory", tmp_path / "ab", "--log-format", "journald"]
    refused = subprocess.run(asked, capture_output=True, text=True, env=nowhere, check=False)
    assert refused.returncode == 2 and "the journal cannot be reached" in refused.stderr
    with (tmp_path / "log").open("wb") as stream:
        found = os.fstat(stream.fileno())
        environment = {**nowhere, "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        command = [DAEMON, "--directory", tmp_path / "ab", "--exit-when-idle", "10ms"]
        assert subprocess.run(command, stderr=stream, env=environment, check=False).returncode == 0
    assert "draining: idle" in (tmp_path / "log").read_text()


def test_the_catalog_has_every_id_and_no_other() -> None:
    entries = re.findall(r"^-- ([0-9a-f]{32})\nSubject: .+\nDefined-By: arraybridge\n\n\S", CATALOG.read_text(), re.MULTILINE)
    assert entries == list(ids().values()) == sorted(set(entries))


@pytest.mark.skipif(shutil.which("journalctl") is None, reason="journalctl is not installed")
def test_systemd_accepts_the_catalog(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/systemd/catalog"
    folder.mkdir(parents=True)
    shutil.copy(CATALOG, folder)
    (tmp_path / "var/lib/systemd/catalog").mkdir(parents=True)
    compiled = subprocess.run(["journalctl", f"--root={tmp_path}", "--update-catalog"], capture_output=True, text=True)
    assert (compiled.returncode, compiled.stderr) == (0, "")
    told = subprocess.run(["journalctl", f"--root={tmp_path}", "--dump-catalog"], capture_output=True, text=True).stdout
    assert told.count("Defined-By: arraybridge") == len(ids())
