# SPDX-License-Identifier: Apache-2.0
"""Two users of one daemon: a victim that makes calls at a steady pace, and an attacker with its own namespace.

A Neighbourhood is a private daemon with default limits whose directory every user may enter; REQUIRES root. An attack is
a row of ATTACKS; `attacked` runs one and measures an Outcome: the victim's latencies before and during it, the longest
time between two watchdog notifications, and how memory and descriptors are released after the attackers are dead.
The fault tests (test_neighbours.py) check properties of the outcome, the benchmark (tests/bench) its numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build/dev"))
PROGRAMS = ("attacker.py", "grpc_attacker.py", "http2.py", "victim.py")
ATTACKER, VICTIM = 65534, 65533  # user ids
WATCHDOG_US = 400_000  # the daemon sends four notifications in this time
PATIENCE_S = 120.0  # a watchdog against hangs, not a limit on speed
SETTLED_KIB = 16 << 10  # memory that an allocator may keep
SETTLED_DESCRIPTORS = 8  # arenas that the victim released remain for a while


@dataclass(frozen=True)
class Attack:
    """Parameters of a stage of attacker.py, at full size; `small` has those of the fault tests."""

    number: int  # in the list of findings
    stage: str
    full: dict[str, int]
    small: dict[str, int] = field(default_factory=dict)
    client: str = ""  # a command of fault_client, which is the attacker's program if there is no stage
    processes: int = 1
    program: str = "attacker.py"

    def sizes(self, full: bool) -> dict[str, int]:
        return self.full if full else {**self.full, **self.small}


ATTACKS = {
    attack.stage: attack
    for attack in (
        Attack(1, "orphans", {"namespaces": 8, "shares": 60_000, "sessions": 250}, {"shares": 6000}),
        Attack(2, "hints", {"namespaces": 64, "shares": 504, "sessions": 4}, {}),
        Attack(3, "holders_end", {"namespaces": 16, "shares": 504, "sessions": 250}, {}),
        Attack(4, "expire", {"namespaces": 1, "shares": 60_000, "within_ms": 5_000}, {"shares": 30_000}),
        Attack(5, "lists", {"shares": 512, "sessions": 200}, {}),
        Attack(6, "acquires", {"shares": 512, "sessions": 100}, {}),
        Attack(7, "waits", {"sessions": 40, "requests": 63}, {}),
        Attack(8, "pages", {"namespaces": 63, "sessions": 250, "arenas": 40}, {}),
        Attack(9, "ends", {"namespaces": 62, "channels": 255, "members": 64}, {"namespaces": 8}),
        Attack(11, "queue", {}, {}, client="churn 1 1 1000000000", processes=3),
        Attack(12, "waiters", {"sessions": 200, "requests": 63}, {}),
        Attack(13, "minimal", {"namespaces": 8, "shares": 60_000}, {}),
        Attack(14, "resets", {"connections": 24}, program="grpc_attacker.py"),
        Attack(15, "unagreed", {"connections": 24}, program="grpc_attacker.py"),
        Attack(16, "headers", {"connections": 24}, program="grpc_attacker.py"),
        Attack(17, "windows", {"connections": 500}, program="grpc_attacker.py"),
        Attack(18, "unfinished", {"connections": 500}, program="grpc_attacker.py"),
        Attack(19, "control", {"connections": 24}, program="grpc_attacker.py"),
        Attack(20, "ends", {"connections": 24}, program="grpc_attacker.py"),
        Attack(21, "answers", {"connections": 24}, program="grpc_attacker.py"),
        Attack(22, "bombs", {"connections": 24}, program="grpc_attacker.py"),
    )
}
DOORS = ("lifeline", "broker")  # the victim's
TIDY = Attack(0, "tidy", {})


@dataclass
class Outcome:
    """The result of one attack. Times are in milliseconds unless a name says otherwise."""

    got: dict[str, Any]  # the attackers' report after their preparation
    idle: list[float]
    staged: list[float]  # during the preparation
    attacked: list[float]
    after: list[float]  # after the attackers' death
    refusals: list[str]  # all refusals that the victim got
    gap_s: float  # the longest time between two watchdog notifications
    kib_before: int
    kib_during: int  # the most
    kib_after: int
    descriptors_before: int
    descriptors_during: int
    descriptors_after: int
    settled_s: float | None  # from the withdrawal of the dead attackers' shares until memory and descriptors are back; None: never

    @property
    def calls(self) -> list[float]:
        """All calls of the victim during the attack and after it."""
        return [*self.staged, *self.attacked, *self.after]

    @property
    def worst(self) -> float:
        return max(self.calls, default=0.0)

    def line(self) -> str:
        settled = "never" if self.settled_s is None else f"{self.settled_s:.1f} s"
        return (
            f"idle p99 {p99(self.idle):.2f} ms | p50 {statistics.median(self.attacked or [0.0]):.2f} p99 {p99(self.attacked):.2f} "
            f"worst {self.worst:.0f} ms | gap {self.gap_s:.1f} s | KiB {self.kib_before} {self.kib_during} {self.kib_after} | "
            f"fds {self.descriptors_before} {self.descriptors_during} {self.descriptors_after} | settled {settled} | "
            f"refused {len(self.refusals)} | {self.got}"
        )


def p99(numbers: list[float]) -> float:
    return sorted(numbers)[min(len(numbers) - 1, len(numbers) * 99 // 100)] if numbers else 0.0


class SignsOfLife:
    """The service manager's socket: the times of the daemon's watchdog notifications."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": str(WATCHDOG_US)}
        self.times: list[float] = []
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while words := self.socket.recv(4096):
                if b"WATCHDOG=1" in words:
                    self.times.append(time.monotonic())

    def longest_gap_s(self, since: float) -> float:
        """Includes the current gap."""
        times = [since, *(each for each in list(self.times) if each > since), time.monotonic()]
        return max(later - earlier for earlier, later in zip(times, times[1:], strict=False))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()


class Neighbourhood:
    """The daemon, and the processes of both users."""

    def __init__(self, daemon: Path, *flags: str, client: Path = BUILD / "tests/faults/fault_client") -> None:
        self.client = client
        self.path = Path(tempfile.mkdtemp(prefix="arraybridge-neighbours-"))
        self.path.chmod(0o755)
        for name in PROGRAMS:
            shutil.copy(HERE / name, self.path)
        self._stubs()
        self.directory = self.path / "run"
        self.directory.mkdir()
        self.signs = SignsOfLife(self.path / "notify")
        self.processes: list[subprocess.Popen[str]] = []
        self.log = (self.path / "log").open("wb")
        read, write = os.pipe()
        self.daemon = subprocess.Popen(
            [str(daemon), "--directory", str(self.directory), "--ready-fd", str(write), *flags],
            pass_fds=[write], stdout=self.log, stderr=self.log, env={**os.environ, **self.signs.environment},
        )  # fmt: skip
        os.close(write)
        with os.fdopen(read) as lines:
            assert lines.readline() == "ready\n", self.log_text()
        self.directory.chmod(0o755)
        for door in DOORS:
            (self.directory / f"{door}.sock").chmod(0o666)

    def _stubs(self) -> None:
        sys.path.insert(0, str(ROOT / "tests/foreign"))
        from foreign_client import generate_into

        generate_into(self.path / "stubs")
        for path in (self.path / "stubs").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def log_text(self) -> str:
        return (self.path / "log").read_text(errors="replace")

    def run_as(self, uid: int, command: list[str]) -> subprocess.Popen[str]:
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        process = subprocess.Popen(
            [*become, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
            env={**os.environ, "ARRAYBRIDGE_FOREIGN_STUBS": str(self.path / "stubs"), "HOME": "/nonexistent"},
        )  # fmt: skip
        self.processes.append(process)
        return process

    def attacker(self, attack: Attack, full: bool) -> subprocess.Popen[str]:
        if attack.client:
            client = self.path / "fault_client"
            if not client.exists():
                shutil.copy(self.client, client)
                client.chmod(0o755)
            return self.run_as(ATTACKER, [str(client), str(self.directory), "default", "30000", "calls"])
        sizes = [f"{key}={value}" for key, value in attack.sizes(full).items()]
        return self.run_as(ATTACKER, [sys.executable, str(self.path / attack.program), str(self.directory), attack.stage, *sizes])

    def kib(self) -> int:
        """The daemon's own memory, without the memory that it hands out."""
        return int(re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{self.daemon.pid}/status").read_text())[0])

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
        self.daemon.terminate()
        try:
            self.daemon.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        self.signs.close()
        self.log.close()
        shutil.rmtree(self.path)


@contextlib.contextmanager
def neighbourhood(daemon: Path, *flags: str, **more: Any) -> Iterator[Neighbourhood]:
    place = Neighbourhood(daemon, *flags, **more)
    try:
        yield place
    except BaseException:
        print(place.log_text()[-4000:])
        raise
    finally:
        place.close()


class Calls:
    """The victim's process and its measurements."""

    def __init__(self, place: Neighbourhood, door: str) -> None:
        self.file = place.path / "victim"
        self.file.mkdir()
        self.file.chmod(0o777)
        self.process = place.run_as(
            VICTIM, [sys.executable, str(place.path / "victim.py"), str(place.directory / f"{door}.sock"), str(self.file / "calls")]
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def end(self) -> list[tuple[str, int, int, str]]:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0, "the victim has failed"
        return [tuple(json.loads(line)) for line in (self.file / "calls").read_text().splitlines()]


def between(calls: list[tuple[str, int, int, str]], begin: float, end: float) -> list[float]:
    return [took / 1e6 for _, at, took, _ in calls if begin <= at / 1e9 < end]


def stage(process: subprocess.Popen[str], attack: Attack) -> dict[str, Any]:
    """The attacker's report after its preparation."""
    assert process.stdout is not None
    assert process.stdin is not None
    if not attack.client:
        line = process.stdout.readline()
        assert line, f"the attacker has failed: {process.wait(PATIENCE_S)}"
        return dict(json.loads(line))
    process.stdin.write("put churn/0 4096 1 replace\n")
    process.stdin.flush()
    assert process.stdout.readline().startswith("ok")
    return {}


def go(process: subprocess.Popen[str], attack: Attack) -> None:
    assert process.stdin is not None
    process.stdin.write((attack.client or "go") + "\n")
    process.stdin.flush()


def settle(place: Neighbourhood, kib: int, descriptors: int, patience_s: float) -> float | None:
    """Seconds until memory and descriptors are back at the baseline."""
    begin = time.monotonic()
    while (passed := time.monotonic() - begin) < patience_s:
        if place.kib() <= kib + SETTLED_KIB and place.descriptors() <= descriptors + SETTLED_DESCRIPTORS:
            return passed
        time.sleep(0.02)
    return None


def most(place: Neighbourhood, seconds: float) -> tuple[int, int]:
    """The most memory and descriptors of the daemon in this time."""
    kib = descriptors = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kib, descriptors = max(kib, place.kib()), max(descriptors, place.descriptors())
        time.sleep(0.05)
    return kib, descriptors


def attacked(place: Neighbourhood, attack: Attack, *, full: bool, door: str = "lifeline", seconds: float = 5.0,
             idle_s: float = 3.0, settle_s: float = 30.0) -> Outcome:  # fmt: skip
    victim = Calls(place, door)
    time.sleep(1.0)  # its first calls, with their one-time costs in the daemon
    t_idle, kib, descriptors = time.monotonic(), place.kib(), place.descriptors()
    time.sleep(idle_s)
    t_stage = time.monotonic()
    attackers = [place.attacker(attack, full) for _ in range(attack.processes)]
    got = [stage(attacker, attack) for attacker in attackers][0]
    t_attack = time.monotonic()
    for attacker in attackers:
        go(attacker, attack)
    kib_during, descriptors_during = most(place, seconds)
    t_death = time.monotonic()
    for attacker in attackers:
        attacker.kill()
    for attacker in attackers:
        attacker.wait()
    tidied = place.attacker(TIDY, full)  # named shares outlive their producers by design
    stage(tidied, TIDY)
    tidied.kill()
    tidied.wait()
    settled = settle(place, kib, descriptors, settle_s)
    time.sleep(1.0)  # calls of the victim in this time count too
    calls = victim.end()
    end = time.monotonic()
    return Outcome(
        got=got,
        idle=between(calls, t_idle, t_stage),
        staged=between(calls, t_stage, t_attack),
        attacked=between(calls, t_attack, t_death),
        after=between(calls, t_death, end),
        refusals=[refusal for *_, refusal in calls if refusal],
        gap_s=place.signs.longest_gap_s(t_idle),
        kib_before=kib, kib_during=kib_during, kib_after=place.kib(),
        descriptors_before=descriptors, descriptors_during=descriptors_during, descriptors_after=place.descriptors(),
        settled_s=settled,
    )  # fmt: skip


def main() -> None:
    """neighbour.py DAEMON [--full] [--broker] [STAGE ...]: prints one line for each outcome."""
    words = sys.argv[1:]
    full, door = "--full" in words, DOORS["--broker" in words]
    daemon, *names = [word for word in words if not word.startswith("--")]
    for name in names or ATTACKS:
        with neighbourhood(Path(daemon)) as place:
            print(f"{name}: {attacked(place, ATTACKS[name], full=full, door=door).line()}", flush=True)


if __name__ == "__main__":
    main()
