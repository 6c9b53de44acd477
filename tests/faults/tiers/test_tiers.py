# SPDX-License-Identifier: Apache-2.0
"""A daemon that is killed while it moves bytes leaves one of the two places valid, and no file that nobody has."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from pathlib import Path

import pytest
from harness import BUILD, Daemon, Ledger, daemon_in, eventually

CTL = BUILD / "client/ctl/arraybridgectl"
SEED = int(os.environ.get("ARRAYBRIDGE_SEED", random.randrange(1 << 30)))
KILLS = int(os.environ.get("ARRAYBRIDGE_LIVES", "1000" if os.environ.get("ARRAYBRIDGE_LONG") else "20"))  # of the storm
SIZE = 1 << 20
GRACE = ("--orphan-grace", "2s")  # of the sessions of commands that end with the daemon

# The steps of a move, each a failpoint, and how often one round passes them at most.
OUT = ["tier_file_made", "tier_file_written", "tier_file_named", "tier_retired", "tier_place_recorded"]
BOTH = ["tier_range_returned", "tier_share_recorded"]
BACK = ["tier_memory_reserved", "tier_memory_filled", "tier_memory_recorded", "tier_moved_in", "tier_remove"]
PASSINGS = [(point, passing) for point in OUT + BACK for passing in (1, 2)] + [(point, n) for point in BOTH for n in (1, 2, 3)]


def tier(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(CTL), "-H", str(daemon.directory), "--timeout", "60s", "tier", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def insisted(daemon: Daemon, *words: str) -> None:
    """The connection of a call ends with the daemon."""
    eventually(f"tier {words}", lambda: tier(daemon, *words).returncode == 0, lambda: tier(daemon, *words).stderr)


def with_files(directory: Path, **environment: str) -> dict[str, str]:
    return {"ARRAYBRIDGED_TIERS__DIRECTORY": str(directory), **environment}


def files(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir() if each.name != "lock")


@pytest.mark.parametrize(("point", "passing"), PASSINGS)
def test_a_kill_between_any_two_steps_loses_nothing(tmp_path: Path, point: str, passing: int) -> None:
    """Fault 10, of moves: the share's bytes, the ledger, and the files."""
    once, directory = tmp_path / "once", tmp_path / "files"
    armed = with_files(directory, ARRAYBRIDGE_FAILPOINT=f"{point}:kill_once={passing}:{once}")
    with daemon_in(tmp_path / "broker", *GRACE, keeper=True, environment=armed) as daemon:
        ledger = Ledger(daemon)
        writer, reader = daemon.client(), daemon.client()
        writer.ask(f"put a {SIZE} 5")
        writer.ask("put other 65536 6")  # beside it in the arena
        for _ in range(2):
            insisted(daemon, "out", "a")
            reader.insist("get a 5")
            reader.ask("check")
            reader.ask("drop")
            reader.ask("flush")
        insisted(daemon, "out", "a")
        insisted(daemon, "verify")
        writer.insist("withdraw a")
        reader.insist("get other 6")
        reader.ask("drop")
        writer.insist("withdraw other")
        eventually("no file is left", lambda: files(directory) == [], lambda: files(directory))
        assert once.exists(), "the point was never passed"
        writer.leave()
        reader.leave()
        ledger.settle()


def test_bytes_on_disk_survive_a_kill(tmp_path: Path) -> None:
    directory = tmp_path / "files"
    with daemon_in(tmp_path / "broker", *GRACE, keeper=True, environment=with_files(directory)) as daemon:
        writer, reader = daemon.client(), daemon.client()
        for name in range(5):
            writer.ask(f"put s{name} {SIZE} {name}")
            insisted(daemon, "out", f"s{name}")
        before = files(directory)
        assert len(before) == 5
        for _ in range(3):
            daemon.kill()
            reader.insist("stats")
            assert files(directory) == before
        for name in range(5):
            reader.insist(f"get s{name} {name}")
        reader.ask("check")
        eventually("the files go", lambda: files(directory) == [])


def test_pins_survive_a_kill(tmp_path: Path) -> None:
    with daemon_in(tmp_path / "broker", *GRACE, keeper=True, environment=with_files(tmp_path / "files")) as daemon:
        writer = daemon.client()
        writer.ask(f"put a {SIZE} 5")
        writer.ask(f"put b {SIZE} 6")
        assert tier(daemon, "pin", "a", "hard").returncode == 0
        assert tier(daemon, "pin", "b", "soft", "--priority", "-3").returncode == 0
        daemon.kill()
        writer.insist("stats")
        refused = tier(daemon, "out", "a")
        assert refused.returncode != 0 and "it has a hard pin" in refused.stderr
        insisted(daemon, "out", "b")
        insisted(daemon, "pin", "a", "none")
        insisted(daemon, "out", "a")


def test_a_storm_of_kills_while_bytes_move(tmp_path: Path) -> None:
    """Fault 11, of moves: shares go out and come back, and a reader checks every byte."""
    print(f"seed {SEED}, {KILLS} kills")
    chance = random.Random(SEED)
    directory = tmp_path / "files"
    with daemon_in(tmp_path / "broker", *GRACE, keeper=True, environment=with_files(directory)) as daemon:
        ledger = Ledger(daemon)
        writer, reader = daemon.client(), daemon.client()
        for name in range(4):
            writer.ask(f"put s{name} {SIZE} {name}")
        stop = threading.Event()
        rounds = [0, 0]
        failed: list[str] = []

        def move() -> None:
            while not stop.is_set():
                rounds[0] += tier(daemon, "out", f"s{random.randrange(4)}").returncode == 0

        def read() -> None:
            try:
                while not stop.is_set():
                    name = random.randrange(4)
                    reader.insist(f"get s{name} {name}")
                    reader.insist("check")
                    reader.insist("drop")
                    rounds[1] += 1
            except Exception as error:
                failed.append(repr(error))

        threads = [threading.Thread(target=each) for each in (move, read)]
        for thread in threads:
            thread.start()
        for _ in range(KILLS):
            time.sleep(chance.expovariate(8))
            daemon.kill()
            if failed:
                break
        before = list(rounds)
        eventually("both go on", lambda: failed or all(now > then for now, then in zip(rounds, before, strict=True)))
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed, f"{failed}\n{daemon.log_text()[-3000:]}"
        assert "lost 0 shares; 0 damaged" in daemon.log_text()
        reader.insist("drop")
        for name in range(4):
            reader.insist(f"get s{name} {name}")
        reader.insist("check")
        reader.insist("drop")
        for name in range(4):
            writer.insist(f"withdraw s{name}")
        eventually("no file is left", lambda: files(directory) == [], lambda: files(directory))
        writer.leave()
        reader.leave()
        ledger.settle()
