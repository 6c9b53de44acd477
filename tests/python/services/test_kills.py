# SPDX-License-Identifier: Apache-2.0
"""Servers, callers and the broker are killed at random moments: each call has one outcome, nothing is executed twice, nothing is
left.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from processes import daemons_of, environment, start_daemon, stop_daemon

import arraybridge

KILLS = 1000 if os.environ.get("ARRAYBRIDGE_LONG") else 200
SERVERS, CALLERS = 3, 3
HERE = Path(__file__).parent


class Crowd:
    """Processes that crowd.py forks."""

    def __init__(self, address, folder):
        command = [sys.executable, str(HERE / "crowd.py"), str(address), "default", str(folder)]
        pipe = subprocess.PIPE
        self._program = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment())
        self.processes = {"server": [], "caller": []}
        self.killed = set()

    def add(self, kind):
        self._program.stdin.write(f"{kind}\n")
        self._program.stdin.flush()
        self.processes[kind].append(int(self._program.stdout.readline()))

    def kill(self, kind, place):
        process = self.processes[kind].pop(place)
        os.kill(process, signal.SIGKILL)
        self.killed.add(process)

    def wait_for(self, kind):
        """Waits until they have ended by themselves."""
        wait_until(lambda: not any(os.path.exists(f"/proc/{each}") for each in self.processes[kind]))

    def end(self):
        self._program.kill()
        self._program.communicate()


@pytest.fixture
def directory(tmp_path):
    """Of a broker that its keeper continues."""
    path = tmp_path / "broker"
    keeper = start_daemon(str(path), "--log-level", "off", "--keeper", "--orphan-grace", "1s")
    yield path
    assert stop_daemon(keeper) == 0


@pytest.fixture
def crowd(directory, tmp_path):
    made = Crowd(directory, tmp_path)
    yield made
    made.end()


def wait_until(holds, seconds=600):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def executed(folder):
    record = folder / "executed"
    return record.read_text().split() if record.exists() else []


def outcomes(folder):
    """From the name of each call to its outcomes."""
    found = {}
    for record in folder.glob("*.calls"):
        for line in record.read_text().splitlines():
            outcome, _, name = line.rpartition(" ")
            if outcome == "begin":
                found[name] = []
            else:
                found[name].append(outcome)
    return found


def test_random_kills(directory, crowd, tmp_path):
    chance = random.Random(os.environ.get("ARRAYBRIDGE_SEED", "47"))
    kinds = ["server"] * SERVERS + ["caller"] * CALLERS
    for kind in kinds:
        crowd.add(kind)
    for number in range(KILLS):
        before = len(executed(tmp_path))
        if number % 2:  # the services work; in the other rounds the next kill comes at once
            wait_until(lambda: len(executed(tmp_path)) >= before + chance.choice((1, 5, 50)))
        victim = chance.choice([*kinds, "broker"] if number % 5 == 0 else kinds)
        if victim == "broker":
            for daemon in daemons_of(directory):
                os.kill(daemon, signal.SIGKILL)
            continue
        crowd.kill(victim, chance.randrange(len(crowd.processes[victim])))
        crowd.add(victim)
    (tmp_path / "end").touch()
    crowd.wait_for("caller")
    calls, twice = outcomes(tmp_path), [name for name, times in Counter(executed(tmp_path)).items() if times > 1]
    assert twice == []
    killed = {name for name in calls if int(name.split("-")[0]) in crowd.killed}
    assert [name for name, found in calls.items() if len(found) > 1 or (not found and name not in killed)] == []
    kinds = Counter(found[0] for found in calls.values() if found)
    assert set(kinds) <= {"answer", "gone"}, kinds
    answered = {name for name, found in calls.items() if found == ["answer"]}
    assert answered <= set(executed(tmp_path))
    assert kinds["answer"] > KILLS // 4  # on a busy machine more callers die before they have an answer
    print(f"{KILLS} kills, {len(calls)} calls: {dict(kinds)}, of killed callers: {len(killed)}")
    for _ in range(SERVERS):
        crowd.kill("server", 0)
    keys = ("channels", "shares", "queued_shares", "leases", "pinned_bytes", "arenas", "charged_bytes")
    with arraybridge.Broker(directory, start="never", timeout_s=60) as broker:
        wait_until(lambda: not any(broker.stats()[key] for key in keys))
