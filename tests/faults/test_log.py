# SPDX-License-Identifier: Apache-2.0
"""A disk or a pipe behind the log that accepts nothing: fault 27. The daemon serves on, and counts the lines that are lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE_S, Daemon, Ledger, RawLifeline, daemon_in


def break_a_rule(daemon: Daemon, messages: Any) -> None:
    """Its lifeline is cut for it, and the log has a line about that."""
    line = RawLifeline(daemon.directory, messages)
    line.send(99)
    assert line.ended()
    line.close()


def dropped_lines(port: str) -> int:
    """As the metrics have it."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as page:
        return int(re.findall(r"^arraybridge_log_dropped_lines_total (\d+)$", page.read().decode(), re.MULTILINE)[0])


def port_in(log: str) -> str:
    return re.findall(r"http port (\d+)", log)[0]


def use(daemon: Daemon) -> None:
    """A client's ordinary calls."""
    client = daemon.client()
    client.ask("put a 65536 1")
    client.ask("get a 1")
    client.ask("drop")
    client.ask("withdraw a")
    client.leave()


def test_a_log_that_is_not_read(tmp_path: Path, messages: Any) -> None:
    """Fault 27: a full pipe behind standard error blocks no client; lines are dropped and counted."""
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    into_pipe = ["sh", "-c", f'exec "$@" 2>{fifo}', "sh"]
    with daemon_in(tmp_path / "broker", "--http", "127.0.0.1:0", prefix=into_pipe) as daemon:
        port = port_in(os.read(reader, 65536).decode())
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(reader, bytes(4096))
        ledger = Ledger(daemon)
        assert dropped_lines(port) == 0
        break_a_rule(daemon, messages)
        use(daemon)
        assert dropped_lines(port) == 1
        with contextlib.suppress(BlockingIOError):
            while True:
                os.read(reader, 65536)
        break_a_rule(daemon, messages)
        read = b""
        while b"dropped" not in read:
            assert select.select([reader], [], [], PATIENCE_S)[0]
            read += os.read(reader, 65536)
        assert b"1 lines were dropped" in read
        ledger.settle()
    os.close(reader)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
def test_a_full_disk_behind_the_log(tmp_path: Path, messages: Any) -> None:
    """Fault 27: the daemon serves on a full disk; when there is room again, the log has whole lines and says how many are missing."""
    disk = tmp_path / "disk"
    disk.mkdir()
    small = f'mount -t tmpfs -o size=64k tmpfs {disk} && exec "$@" 2>>{disk}/log'
    on_disk = ["unshare", "--mount", "sh", "-c", small, "sh"]
    with daemon_in(tmp_path / "broker", "--http", "127.0.0.1:0", "--log-format", "json", prefix=on_disk) as daemon:
        seen = Path(f"/proc/{daemon.pid}/root{disk}")  # in the daemon's mount namespace
        port = port_in((seen / "log").read_text())
        ledger = Ledger(daemon)
        with contextlib.suppress(OSError), (seen / "full").open("wb", buffering=0) as full:
            while True:
                full.write(bytes(512))
        lost = 0
        while lost < 3:
            break_a_rule(daemon, messages)
            use(daemon)
            lost = dropped_lines(port)
        (seen / "full").unlink()
        break_a_rule(daemon, messages)
        use(daemon)
        lines = (seen / "log").read_text().splitlines()
        told = [line for line in lines if f"{lost} lines were dropped" in line]
        assert len(told) == 1 and is_whole(told[0]), lines[-5:]
        torn = [line for line in lines if not is_whole(line)]
        assert len(torn) <= 1, torn  # the line that met the end of the disk
        assert is_whole(lines[-1])
        ledger.settle()


def is_whole(line: str) -> bool:
    try:
        return "message" in json.loads(line)
    except json.JSONDecodeError:
        return False
