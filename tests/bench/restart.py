# SPDX-License-Identifier: Apache-2.0
"""The rows of a daemon that is killed: how soon the next one answers, and what the outage and the store cost.

recover_1e4, recover_1e6: from the start of the next daemon to its first answer to a client that waited, with so many
shares. outage_get: a get without a call while no daemon runs, beside the same get before. publish_while_stored: an
unwaited put under a keeper, beside the same put of a daemon without one, all on one CPU. outage_call: how long after the
next daemon has taken over a call is answered that was made while no daemon ran.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import arraybridge

RECOVERED = re.compile(r"^(\S+) .*life (\d+) of this broker: took over (\d+) shares", re.MULTILINE)
WORK = {
    "recover_1e4": ("start of the next daemon to its first answer, 10^4 shares", "ms", "<= 100 ms"),
    "recover_1e6": ("the same, 10^6 shares", "ms", "<= 1500 ms"),
    "outage_get": ("get and drop without a call while no daemon runs; floor: the same with one", "us", "1.0 x"),
    "publish_while_stored": ("put of 4 KiB, unwaited, Python, one CPU, under a keeper; floor: the same without one", "us", "<= 1.02 x"),
    "outage_call": ("a call made while no daemon runs: its answer after the next one has taken over", "ms", "<= 20 ms"),
}
FLOORS = {"recover_1e4": 100.0, "recover_1e6": 1500.0, "outage_call": 20.0}  # limits


class Kept:
    """A daemon, with a keeper or without one."""

    def __init__(self, folder: Path, daemon: Path, keeper: bool = True, shares: int = 100_000) -> None:
        self.directory = folder / "b"
        self.log = folder / "log"
        limits = ["--limit", f"shares_per_namespace={2 * shares}", "--limit", "object_bytes_per_uid=16GiB"]
        read, write = os.pipe()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [daemon, *(["--keeper"] if keeper else []), "--directory", self.directory, "--backend", "host", "--cache", "0"]
                + ["--host-capacity", str(1 << 30), "--log-format", "text", "--ready-fd", str(write), *limits],
                pass_fds=[write],
                stdout=log,
                stderr=log,
                env={**os.environ, "KEEPER_SHORT_LIFE_MS": "0"},
            )
        os.close(write)
        with os.fdopen(read) as lines:
            assert lines.readline() == "ready\n", self.log.read_text()

    def daemon(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def recovered(self) -> list[tuple[float, int]]:
        """The times at which daemons had taken over, and their shares."""
        found = RECOVERED.findall(self.log.read_text())
        return [(datetime.datetime.fromisoformat(when).timestamp(), int(shares)) for when, _, shares in found]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def connect(kept: Kept) -> arraybridge.Broker:
    import arraybridge  # tests/house reads the names of the rows before the package is installed

    return arraybridge.Broker(kept.directory)


@contextlib.contextmanager
def running(daemon: Path, **how: Any) -> Iterator[Kept]:
    with tempfile.TemporaryDirectory() as folder:
        kept = Kept(Path(folder), daemon, **how)
        try:
            yield kept
        finally:
            kept.stop()


def answered_after_start(kept: Kept, broker: arraybridge.Broker) -> float:
    """Milliseconds from the start of the next daemon to the answer of a call that waits for it."""
    last = kept.daemon()
    answered: list[float] = []

    def call() -> None:
        broker.stats()
        answered.append(time.monotonic())

    os.kill(last, signal.SIGKILL)
    waiting = threading.Thread(target=call)
    waiting.start()
    while kept.daemon() in (0, last):
        pass
    started = time.monotonic()
    waiting.join()
    return (answered[0] - started) * 1e3


def recover(daemon: Path, shares: int, lives: int) -> float:
    with running(daemon, shares=shares) as kept, connect(kept) as broker:
        array = np.zeros(8)
        for i in range(shares):
            broker.put(array, f"s{i}", wait=False)
        broker.flush()
        took = [answered_after_start(kept, broker) for _ in range(lives)]
        assert [found for _, found in kept.recovered()] == [shares] * lives, kept.recovered()
        return statistics.median(took)


def of_gets(broker: arraybridge.Broker, gets: int) -> float:
    """Microseconds of one get and drop, the median of blocks."""
    blocks = []
    for _ in range(20):
        begun = time.perf_counter()
        for _ in range(gets):
            broker.get("a")
        blocks.append((time.perf_counter() - begun) / gets * 1e6)
    return statistics.median(blocks)


def outage_get(daemon: Path, gets: int) -> tuple[float, float]:
    with running(daemon) as kept, connect(kept) as broker:
        broker.put(np.zeros(131072), "a")
        of_gets(broker, gets)
        before = of_gets(broker, gets)
        os.kill(kept.process.pid, signal.SIGSTOP)
        os.kill(kept.daemon(), signal.SIGKILL)
        try:
            during = of_gets(broker, gets)
        finally:
            os.kill(kept.process.pid, signal.SIGCONT)
        broker.stats()
        return during, before


def of_puts(broker: arraybridge.Broker, puts: int) -> float:
    array = np.zeros(512)
    begun = time.perf_counter()
    for _ in range(puts):
        broker.put(array, "p", replace=True, wait=False)
    broker.flush()
    return (time.perf_counter() - begun) / puts * 1e6


@contextlib.contextmanager
def one_cpu() -> Iterator[None]:
    """For this process and those that it starts: what a daemon does counts, and no wake-up of another CPU does."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)


def publish_while_stored(daemon: Path, puts: int) -> tuple[float, float]:
    with one_cpu(), running(daemon) as kept, running(daemon, keeper=False) as bare:
        with connect(kept) as one, connect(bare) as other:
            took: dict[arraybridge.Broker, list[float]] = {one: [], other: []}
            for turn in range(42):  # one, other, other, one: the machine is noisy
                broker = one if turn % 4 in (0, 3) else other
                took[broker].append(of_puts(broker, puts))
            return statistics.median(took[one]), statistics.median(took[other])


def outage_call(daemon: Path, lives: int) -> float:
    with running(daemon) as kept, connect(kept) as broker:
        broker.put(np.zeros(512), "a")
        waited = []
        for _ in range(lives):
            os.kill(kept.daemon(), signal.SIGKILL)
            broker.stats()
            answered = time.time()
            waited.append((answered - kept.recovered()[-1][0]) * 1e3)
            time.sleep(0.05)
        return statistics.median(waited)


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    daemon = build / "daemon/arraybridged"
    lives = 9 if full else 3
    found: dict[str, tuple[float, float]] = {"recover_1e4": (recover(daemon, 10_000, lives), 0)}
    if full:
        found["recover_1e6"] = (recover(daemon, 1_000_000, lives), 0)
    found["outage_get"] = outage_get(daemon, 5000 if full else 500)
    found["publish_while_stored"] = publish_while_stored(daemon, 5000 if full else 500)
    found["outage_call"] = (outage_call(daemon, 3 * lives), 0)
    made = []
    for row, (value, beside) in found.items():
        work, unit, reach = WORK[row]
        floor = FLOORS.get(row, beside)
        numbers = {"value": round(value, 2), "floor": round(floor, 2), "ratio": round(value / floor, 3)}
        made.append({"id": row, "work": work, "unit": unit, "reach": reach, "peer": None, "peer_value": None, **numbers})
    return made


if __name__ == "__main__":
    for row in rows(Path(__file__).resolve().parents[2] / "build/release", True):
        print(
            f"{row['id']:22s} {row['value']:10.2f} {row['unit']:3s} floor {row['floor']:10.2f} ratio {row['ratio']:6.3f}  reach {row['reach']}"
        )
