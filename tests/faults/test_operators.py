# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of a daemon that ended and was continued: info, doctor, metrics, the log; and how it is upgraded."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BUILD, DAEMON, PATIENCE_S, SIMULATED_CUDA, Client, Daemon, Ledger, daemon_in, eventually
from holder import Holder
from test_keeper import AT_ONCE, Keeper, put_and_get, state_of

CTL = Path(os.environ.get("ARRAYBRIDGE_CTL", BUILD / "client/ctl/arraybridgectl"))
ERROR, TIMEOUT = 1, 7


def ctl(directory: Path, *arguments: str, timeout: str = f"{PATIENCE_S:.0f}s") -> subprocess.CompletedProcess[str]:
    return subprocess.run([CTL, "-H", directory, "--timeout", timeout, *arguments], capture_output=True, text=True)


def answered(directory: Path, *arguments: str) -> Any:
    answer = ctl(directory, "-o", "json", *arguments)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def rows(directory: Path, *arguments: str) -> dict[str, str]:
    """The table of `info`."""
    answer = ctl(directory, *arguments, "-o", "csv")
    assert answer.returncode == 0, answer.stderr
    return dict(line.split(",", 1) for line in answer.stdout.splitlines())


def findings(directory: Path) -> dict[str, dict[str, str]]:
    found = json.loads(ctl(directory, "-o", "json", "doctor", "--cuda-driver", "none").stdout)
    return {finding["what"]: finding for finding in found}


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    running = Keeper(tmp_path, "--http", "127.0.0.1:0", environment=AT_ONCE)
    yield running
    running.close()


def page(keeper: Keeper) -> dict[str, float]:
    (port,) = {int(line.rsplit(" ", 1)[1]) for line in keeper.log_text().splitlines() if "at http port" in line}
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as line:
        line.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = b"".join(iter(lambda: line.recv(65536), b"")).decode()
    lines = [each.rsplit(" ", 1) for each in text.splitlines() if each.startswith("arraybridge_")]
    return {name.removeprefix("arraybridge_"): float(value) for name, value in lines}


# ---- upgrades ----


def test_an_upgrade_under_a_client(keeper: Keeper, tmp_path: Path) -> None:
    client = Client(keeper.directory)
    client.ask("put lidar 65536 7")
    client.ask("get lidar 7")
    sessions = answered(keeper.directory, "ls", "sessions", "--all")["sessions"]
    (mine,) = [row["session"] for row in sessions if row["process_id"] == str(client.pid)]
    last = keeper.daemon
    keeper.replace_program(f'#!/bin/sh\ntouch {tmp_path}/upgraded\nexec {DAEMON} "$@"\n')
    upgraded = answered(keeper.directory, "upgrade")
    assert (upgraded["before"]["life"], upgraded["now"]["life"]) == (1, 2)
    assert upgraded["before"]["version"] == upgraded["now"]["version"] != ""
    assert (tmp_path / "upgraded").exists() and state_of(last) == "Z"
    client.ask("check")
    client.ask("get lidar 7")
    client.ask("put next 65536 8")
    client.ask("get next 8")
    sessions = answered(keeper.directory, "ls", "sessions", "--all")["sessions"]
    assert [row["session"] for row in sessions if row["process_id"] == str(client.pid)] == [mine]
    life = answered(keeper.directory, "info")["life"]
    assert life["last_end"] == "asked to be started anew" and life["lost_shares"] == "0"
    table = ctl(keeper.directory, "upgrade")
    assert [line.split()[::2] for line in table.stdout.splitlines()] == [["DAEMON", "LIFE"], ["before", "2"], ["now", "3"]]
    client.ask("get next 8")
    client.leave()


def test_an_upgrade_is_refused_if_no_process_keeps_descriptors(daemon: Daemon, ledger: Ledger) -> None:
    refused = ctl(daemon.directory, "upgrade")
    assert (refused.returncode, "start it with --keeper" in refused.stderr) == (ERROR, True), refused.stderr
    assert daemon.process.poll() is None
    ledger.settle()


def test_an_upgrade_is_refused_after_the_end_of_the_keeper(keeper: Keeper) -> None:
    daemon = keeper.daemon
    os.kill(keeper.pid, signal.SIGKILL)
    keeper.process.wait(PATIENCE_S)
    eventually("it is reported", lambda: "the keeper has ended" in keeper.log_text())
    refused = ctl(keeper.directory, "upgrade")
    assert (refused.returncode, "the keeper has ended" in refused.stderr) == (ERROR, True), refused.stderr
    assert rows(keeper.directory, "info")["descriptors kept by"] == "none: the keeper has ended"
    assert findings(keeper.directory)["restart"]["health"] == "problem"
    os.kill(daemon, signal.SIGTERM)
    eventually("the daemon ends", lambda: not Path(f"/proc/{daemon}").exists())


def test_an_upgrade_to_a_program_that_does_not_serve_is_reported(keeper: Keeper) -> None:
    for _ in range(10):
        keeper.replace_program("#!/bin/sh\nexec sleep 1000\n")
        answer = ctl(keeper.directory, "upgrade", timeout="500ms")
        if "was asked to end" in answer.stderr:
            break
        keeper.replace_program(DAEMON)  # a stalled machine has delayed the request itself: once more
        keeper.kill_daemon()
        put_and_get(keeper.directory)
    assert answer.returncode == TIMEOUT and re.search(r"life \d+ of the broker was asked to end", answer.stderr), answer.stderr


# ---- what is shown ----


def test_info_and_metrics_say_what_was_recovered(keeper: Keeper) -> None:
    before = rows(keeper.directory, "info")
    assert (before["life"], before["descriptors kept by"]) == ("1", "the keeper") and "recovered" not in before
    client = Client(keeper.directory)
    client.ask("put lidar 65536 7")
    keeper.kill_daemon()
    client.ask("get lidar 7")
    after = rows(keeper.directory, "info")
    assert (after["life"], after["last life ended by"]) == ("2", "signal 9")
    assert after["recovered"].startswith('"1 shares, 1 sessions, ') and after["lost"] == '"0 shares, 0 in all lives"'
    assert after["first life began"] == before["life began"] <= after["life began"]
    keeper.kill_daemon(signal.SIGABRT)  # AddressSanitizer ends a process by itself at SIGSEGV
    client.ask("get lidar 7")
    life = answered(keeper.directory, "info")["life"]
    assert (life["number"], life["last_end"], life["holder"]) == ("3", "signal 6", "HOLDER_KEEPER")
    numbers = page(keeper)
    assert (numbers["recoveries_total"], numbers["recovered_shares"], numbers["recovered_sessions"]) == (2, 1, 1)
    assert numbers["recovered_bytes"] >= 65536 and numbers["lost_shares_total"] == 0
    assert numbers["store_up"] == 1 and 0 < numbers["store_entries"] < numbers["store_entries_max"] == 8000
    assert numbers["store_entries"] == float(life["store_entries"]) and numbers["store_refused_total"] == 0
    client.leave()


@pytest.mark.skipif(not SIMULATED_CUDA.exists(), reason="the simulated driver is not built")
def test_lost_shares_are_named_to_administrators(keeper: Keeper) -> None:
    client = Client(keeper.directory)
    client.ask("put lidar 65536 7")
    words = f"--directory {keeper.directory} --cuda-driver {SIMULATED_CUDA} --device cuda:0"  # without host memory
    keeper.replace_program(f"#!/bin/sh\nSIMULATED_CUDA=devices=1 exec {DAEMON} {words}\n")
    upgrade = ctl(keeper.directory, "upgrade")
    assert (upgrade.returncode, "1 shares were lost" in upgrade.stderr) == (ERROR, True), upgrade.stderr
    why = "its device is not served any more"
    (lost,) = answered(keeper.directory, "info", "--lost")["lost"]
    assert lost == {"of": {"namespace": "default", "uid": os.getuid()}, "name": "lidar", "why": why}
    table = rows(keeper.directory, "info")
    assert table["lost share"] == f"'lidar' in 'default' of user {os.getuid()}: {why}"
    assert table["lost"] == '"1 shares, 1 in all lives"'
    public = answered(keeper.directory, "info")
    assert public["life"]["lost_shares"] == "1" and "lidar" not in json.dumps(public)
    found = findings(keeper.directory)
    assert found["losses"]["health"] == "note" and "1 shares were lost" in found["losses"]["finding"]
    keeper.kill_daemon()
    life = answered(keeper.directory, "info")["life"]
    assert (life["lost_shares"], life["lost_shares_total"]) == ("0", "1")
    client.kill()


@pytest.fixture
def holder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Holder]:
    command = [str(DAEMON), "--directory", str(tmp_path / "broker"), "--backend", "host", "--host-capacity", "16777216", "--cache", "0"]
    stand_in = Holder(tmp_path, command, entries_max=getattr(request, "param", 8192))
    yield stand_in
    stand_in.close()


def test_a_service_manager_does_not_say_how_the_last_daemon_ended(holder: Holder, tmp_path: Path) -> None:
    holder.start()
    holder.kill()
    holder.start()
    table = rows(tmp_path / "broker", "info")
    assert table["last life ended by"] == "unknown (service manager)"
    assert table["descriptors kept by"] == "the service manager"


@pytest.mark.parametrize("holder", [4], indirect=True)  # three sockets and the journal
def test_doctor_reports_a_full_store(holder: Holder, tmp_path: Path) -> None:
    holder.start()
    store = findings(tmp_path / "broker")["descriptor store"]
    assert store["health"] == "problem" and store["finding"].startswith("4 of 4 entries")
    assert "FileDescriptorStoreMax=" in store["mend"]


def test_doctor_says_whether_a_kill_is_survived(keeper: Keeper, tmp_path: Path) -> None:
    kept = findings(keeper.directory)
    assert kept["restart"]["health"] == kept["descriptor store"]["health"] == "ok"
    with daemon_in(tmp_path / "alone") as alone:
        lost = findings(alone.directory)
    assert lost["restart"]["health"] == "note" and "--keeper" in lost["restart"]["mend"]
    assert "descriptor store" not in lost


@pytest.mark.skipif(not SIMULATED_CUDA.exists(), reason="the simulated driver is not built")
def test_doctor_reports_memory_that_ends_with_the_daemon(tmp_path: Path) -> None:
    command = [str(DAEMON), "--directory", str(tmp_path / "broker"), "--cuda-driver", str(SIMULATED_CUDA), "--cache", "0"]
    holder = Holder(tmp_path, command, environment={"SIMULATED_CUDA": "devices=1;off=103"})  # it exports no descriptors
    try:
        holder.start()
        (found,) = [each for what, each in findings(tmp_path / "broker").items() if what.startswith("restart of cuda:")]
        assert found["health"] == "note" and "cuda_ipc are lost" in found["finding"] and found["mend"]
    finally:
        holder.close()
