# SPDX-License-Identifier: Apache-2.0
"""The rows of tiers, each beside the same work without arraybridge, in one run.

tier_out: Share.demote of a share; floor: posix_fallocate, and pwrite of the same bytes in parts of 4 MiB, without fdatasync.
tier_in: Share.prefetch of it, whose file is not in the page cache; floor: pread of a file of these bytes, likewise, into new
memory. The floors compute no digest. under_pressure_get, under_pressure_put: the 99th percentile of a user's calls (a get of an
array that is held, a put of 64 KiB in place of the one before) while another process of that user puts and gets a working set
of three times the memory; floor: the same calls when no other process calls. neighbour_spill_get, neighbour_spill_put: the same
while the other process is another user's; only for root.

    tests/bench/tier_rows.py [full] prints the rows as JSON
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from table_rows import row

MIB = 1 << 20
PART = 4 * MIB
OTHER_USER = 65534
WORK = {
    "tier_out": ("bytes of a share to a file; floor: pwrite of them", "ms", "<= 1.11 x"),
    "tier_in": ("and back, from the disk; floor: pread of them", "ms", "<= 1.11 x"),
    "under_pressure_get": ("get of what is held beside 3 x the memory in puts and gets, p99; floor: idle", "us", "<= 2 x"),
    "under_pressure_put": ("put of 64 KiB beside that, p99; floor: idle", "us", "<= 2 x"),
    "neighbour_spill_get": ("get of what is held beside another user's, p99; floor: idle", "us", "<= 3 x"),
    "neighbour_spill_put": ("put of 64 KiB beside that, p99; floor: idle", "us", "<= 3 x"),
}
PRESSER = """
import sys
import numpy as np
from arraybridge import Broker
broker = Broker(sys.argv[1], start="never", timeout_s=60)
array = np.ones(1 << 18, "uint32")
count = int(sys.argv[2])
for name in range(count):
    broker.put(array, f"set/{name}", replace=True)
print("ready", flush=True)
at = 0
while True:
    at = (at + 7) % count
    broker.get(f"set/{at}")
    if at % 3 == 0:
        broker.put(array, f"set/{at}", replace=True)
"""
VICTIM = """
import json, sys, time
import numpy as np
from arraybridge import Broker
broker = Broker(sys.argv[1], start="never", timeout_s=60)
broker.put(np.ones(1 << 18, "uint32"), "held")
held = broker.get("held")
small = np.ones(1 << 16, "uint8")
broker.put(small, "small", replace=True)
print("ready", flush=True)
while sys.stdin.readline():
    took = {"get": [], "put": []}
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        begun = time.perf_counter()
        broker.get("held")
        between = time.perf_counter()
        broker.put(small, "small", replace=True)
        took["put"].append(time.perf_counter() - between)
        took["get"].append(between - begun)
        time.sleep(0.0005)
    print(json.dumps({call: sorted(each)[int(len(each) * 0.99)] * 1e6 for call, each in took.items()}), flush=True)
"""


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    environment = {**os.environ, "ARRAYBRIDGE_DAEMON": str(build / "daemon/arraybridged")}
    done = subprocess.run([sys.executable, __file__, *(["full"] if full else [])], env=environment, stdout=subprocess.PIPE, check=True)
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made


@contextlib.contextmanager
def daemon_in(folder: Path, capacity: int) -> Iterator[Path]:
    """A broker for all users with so many MiB of memory and files below `folder`. A user may have three quarters of it."""
    directory, (ready, tell) = folder / "broker", os.pipe()
    directory.mkdir()
    words = [os.environ["ARRAYBRIDGE_DAEMON"], "--directory", str(directory), "--ready-fd", str(tell)]
    flags = [
        "--cache",
        "0",
        "--host-capacity",
        f"{capacity}MiB",
        "--namespace-quota",
        "75%",
        "--arena-idle",
        "100ms",
        "--log-level",
        "error",
    ]
    files = {"ARRAYBRIDGED_TIERS__DIRECTORY": str(folder / "files")}
    daemon = subprocess.Popen([*words, *flags], pass_fds=[tell], env={**os.environ, **files})
    os.close(tell)
    with os.fdopen(ready, "rb") as pipe:
        assert pipe.readline() == b"ready\n", f"the daemon ended with status {daemon.wait()}"
    directory.chmod(0o755)
    for door in ("broker.sock", "lifeline.sock"):
        (directory / door).chmod(0o666)
    try:
        yield directory
    finally:
        daemon.terminate()
        assert daemon.wait() == 0


def timed_ms(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def write_plainly(path: Path, content: memoryview) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.posix_fallocate(file, 0, len(content))
    for at in range(0, len(content), PART):
        assert os.pwrite(file, content[at : at + PART], at) == len(content[at : at + PART])
    os.close(file)


def read_plainly(path: Path, size: int) -> None:
    memory = mmap.mmap(-1, size)
    file = os.open(path, os.O_RDONLY)
    with memoryview(memory) as view:
        for at in range(0, size, PART):
            assert os.preadv(file, [view[at : at + PART]], at) == len(view[at : at + PART])
    os.close(file)
    memory.close()


def leave_the_cache(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    os.fdatasync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def moved_ms(folder: Path, mebibytes: int, rounds: int) -> dict[str, float]:
    """Medians."""
    import numpy as np

    from arraybridge import Broker

    array = np.random.default_rng(1).integers(0, 2**32, mebibytes * MIB // 4, "uint32")
    content = memoryview(array).cast("B")
    took: dict[str, list[float]] = {"out": [], "write": [], "in": [], "read": []}
    plain = folder / "plain"
    with daemon_in(folder, 3 * mebibytes) as address, Broker(address, start="never", timeout_s=120) as broker:
        share = broker.put(array, "moved")
        for _ in range(rounds):
            took["out"].append(timed_ms(lambda: share.demote(timeout=120)))
            took["write"].append(timed_ms(lambda: write_plainly(plain, content)))
            (file,) = (each for each in (folder / "files").iterdir() if each.name != "lock")
            for each in (file, plain):
                leave_the_cache(each)
            took["in"].append(timed_ms(lambda: share.prefetch(timeout=120)))
            took["read"].append(timed_ms(lambda: read_plainly(plain, content.nbytes)))
            plain.unlink()
        assert (broker.get("moved") == array).all()
    return {name: statistics.median(each) for name, each in took.items()}


def pressed_us(folder: Path, mebibytes: int, seconds: float, uid: int) -> tuple[dict[str, float], dict[str, float]]:
    """The 99th percentiles of a victim's get and put, alone and beside a presser of this user."""
    became = [] if uid == os.getuid() else ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    with daemon_in(folder, mebibytes) as address:
        victim_words = [sys.executable, "-c", VICTIM, str(address), str(seconds)]
        victim = subprocess.Popen(victim_words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert victim.stdout is not None and victim.stdin is not None
        assert victim.stdout.readline() == "ready\n"

        def percentiles() -> dict[str, float]:
            assert victim.stdout is not None and victim.stdin is not None
            print(file=victim.stdin, flush=True)
            found: dict[str, float] = json.loads(victim.stdout.readline())
            return found

        idle = percentiles()
        presser_words = [*became, sys.executable, "-c", PRESSER, str(address), str(3 * mebibytes)]
        presser = subprocess.Popen(presser_words, stdout=subprocess.PIPE, text=True)
        assert presser.stdout is not None
        assert presser.stdout.readline() == "ready\n", f"the presser ended with status {presser.wait()}"
        pressed = percentiles()
        assert presser.poll() is None
        presser.kill()
        presser.wait()
        victim.stdin.close()
        assert victim.wait() == 0
        return idle, pressed


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="arraybridge-tiers-") as name:
        os.chmod(name, 0o755)
        yield Path(name)


def measure(full: bool) -> list[dict[str, Any]]:
    found = []
    with open_folder() as folder:
        moved = moved_ms(folder, 1024 if full else 128, 7 if full else 3)
    found.append(row("tier_out", WORK["tier_out"], moved["out"], moved["write"]))
    found.append(row("tier_in", WORK["tier_in"], moved["in"], moved["read"]))
    pressers = {"under_pressure": os.getuid()}
    if os.getuid() == 0 and shutil.which("setpriv"):
        pressers["neighbour_spill"] = OTHER_USER
    else:
        print("left out: neighbour_spill: only root can run processes of other users, by setpriv", file=sys.stderr)
    for name, uid in pressers.items():
        with open_folder() as folder:
            idle, pressed = pressed_us(folder, 256 if full else 64, 10 if full else 3, uid)
        for call in ("get", "put"):
            found.append(row(f"{name}_{call}", WORK[f"{name}_{call}"], pressed[call], idle[call]))
    return found


if __name__ == "__main__":
    print(json.dumps(measure("full" in sys.argv[1:]), indent=2))
