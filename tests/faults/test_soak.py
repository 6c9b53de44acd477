# SPDX-License-Identifier: Apache-2.0
"""Mixed load for a long time: fault 37. Clients are killed five times a second, the daemon once a second; nothing grows."""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import threading
import time
from pathlib import Path

from harness import PATIENCE_S, SANITIZED, Client, Daemon, Ledger, Refused, daemon_in

SEED = int(os.environ.get("ARRAYBRIDGE_SEED", random.randrange(1 << 30)))
SECONDS = float(os.environ.get("ARRAYBRIDGE_SOAK", "600" if os.environ.get("ARRAYBRIDGE_LONG") else "12"))
DEATHS = 5  # of clients a second
NAMES = 8
# What other clients do in the meantime may refuse these: the name is gone, a channel has another end, a wait is over.
EXPECTED = {"NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "OUT_OF_RANGE"}
SAMPLES = 8  # at least, so that each quarter has some
# A growth from the second quarter of the samples to the last one that is no leak.
GROWTH = {
    "descriptors": 40,
    "maps": 40,
    "threads": 4,
    "private_kib": 8 << 10,
    "keeper_descriptors": 40,
    "keeper_kib": 64,
    "survivor_maps": 40,
    "survivor_kib": 4 << 10,
}


def command(chance: random.Random) -> str:
    seed = chance.randrange(NAMES)  # each name has bytes of its own, whatever its size
    name, channel = f"n{seed}", f"c{seed % 3}"
    size = chance.choice((512, 4096, 65536, 1 << 20, 5 << 20))
    return chance.choice(
        (
            f"put {name} {size} {seed} replace", f"put {name} {size} {seed} replace", f"put {name} 65536 {seed} sealed replace",
            f"get {name} {seed}", f"get {name} {seed}", f"get {name} {seed} private", "check", "drop", f"withdraw {name}", "list", "stats",
            f"tree t{seed} 4096 {seed} 3", f"put {name} 4096 {seed} late replace", "flush", f"open {channel} send", f"open {channel} receive",
            f"send {channel} 4096 7 50", f"receive {channel} 50", f"close {channel} send", f"close {channel} receive",
        )
    )  # fmt: skip


class Load:
    """Clients one after another, each killed at a random moment of whatever it does; or one that is never killed."""

    def __init__(self, daemon: Daemon, number: int, mortal: bool) -> None:
        self.daemon = daemon
        self.chance = random.Random(SEED * 100 + number)
        self.mortal = mortal
        self.stop = False
        self.commands = self.deaths = 0
        self.failed = ""
        self.client = Client(daemon.directory)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        try:
            while not self.stop:
                if self.mortal:
                    self.live_and_die()
                else:
                    self.ask(command(self.chance))
        except Exception as error:
            self.failed = f"{error!r} after {self.commands} commands"

    def live_and_die(self) -> None:
        until = time.monotonic() + self.chance.expovariate(1)  # one death a second for each of these
        while time.monotonic() < until and not self.stop:
            self.ask(command(self.chance))
        self.client.tell(command(self.chance))
        time.sleep(self.chance.random() * 0.01)
        self.client.kill()
        self.deaths += 1
        self.client = Client(self.daemon.directory)

    def ask(self, line: str) -> None:
        self.commands += 1
        try:
            self.client.ask(line)
        except Refused as error:
            if error.code not in EXPECTED:
                raise AssertionError(f"{line!r} failed: {error}") from error


def kib_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def sample(daemon: Daemon, survivor: Client) -> dict[str, float]:
    """A daemon that dies meanwhile is no sample."""
    keeper = daemon.process.pid
    return {
        "descriptors": len(daemon.links()),
        "maps": len(Path(f"/proc/{daemon.pid}/maps").read_text().splitlines()),
        "threads": len(daemon.threads()),
        "private_kib": daemon.private_kib(),
        "keeper_descriptors": len(os.listdir(f"/proc/{keeper}/fd")),
        "keeper_kib": kib_of(keeper),
        "survivor_maps": len(Path(f"/proc/{survivor.pid}/maps").read_text().splitlines()),
        "survivor_kib": kib_of(survivor.pid),
    }


def test_days_of_mixed_load_leave_nothing(tmp_path: Path) -> None:
    print(f"ARRAYBRIDGE_SEED={SEED}, {SECONDS:.0f} s")
    chance = random.Random(SEED)
    with daemon_in(tmp_path / "broker", "--orphan-grace", "1s", keeper=True, environment={"KEEPER_SHORT_LIFE_MS": "500"}) as daemon:
        ledger = Ledger(daemon)
        loads = [Load(daemon, number, mortal=number < DEATHS) for number in range(DEATHS + 2)]
        samples: list[dict[str, float]] = []
        lives = 0

        def enough() -> bool:
            deaths, commands = sum(load.deaths for load in loads), sum(load.commands for load in loads)
            return len(samples) >= SAMPLES and lives >= SECONDS / 2 and deaths >= SECONDS and commands > 20 * SECONDS

        begun = time.monotonic()
        try:
            while not any(load.failed for load in loads):
                passed = time.monotonic() - begun
                if passed >= SECONDS and (enough() or passed >= SECONDS + PATIENCE_S):  # a machine that stalls gets more time
                    break
                time.sleep(0.5 + chance.random() * 0.4)  # a daemon that was killed has settled
                with contextlib.suppress(OSError, IndexError):
                    samples.append(sample(daemon, loads[-1].client))
                time.sleep(0.1)
                daemon.kill()
                lives += 1
        finally:
            for load in loads:
                load.stop = True
            for load in loads:
                load.thread.join(PATIENCE_S)
                load.client.kill()
        assert not [load.failed for load in loads if load.failed], f"{[load.failed for load in loads]}\n{daemon.log_text()[-3000:]}"
        deaths, commands = sum(load.deaths for load in loads), sum(load.commands for load in loads)
        print(f"{lives} kills of the daemon, {deaths} of clients, {commands} commands")
        assert enough()
        assert daemon.log_text().count("lost 0 shares; 0 damaged records") == daemon.log_text().count(" damaged records")
        for what, growth in GROWTH.items():
            if SANITIZED and what.endswith("_kib"):
                continue  # a sanitizer keeps what was freed for a while
            early = [each[what] for each in samples[len(samples) // 4 : len(samples) // 2]]
            late = [each[what] for each in samples[3 * len(samples) // 4 :]]
            grown = statistics.median(late) - statistics.median(early)
            print(f"{what}: {statistics.median(early):.0f}, later {statistics.median(late):.0f}")
            assert grown <= growth, f"{what} has grown by {grown:.0f}: {early} .. {late}"
        for name in daemon.warden.ask("list").split():
            daemon.warden.ask(f"withdraw {name}")
        sweeper = daemon.client()
        for name in sweeper.ask("list").split():
            sweeper.ask(f"withdraw {name}")
        sweeper.leave()
        ledger.settle()
