# SPDX-License-Identifier: Apache-2.0
"""Peers that are other projects' programs: starts, measures and ends them, if they are installed.

Each function returns figures by id, or raises Absent with the reason.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parents[1] / "build/peers"  # one per file of deploy/requirements/peers
READY_S = 20


class Absent(Exception):
    """The peer cannot run here."""


@contextlib.contextmanager
def served(command: list[str], cpu: int | str, ready: Callable[[subprocess.Popen[str]], bool]) -> Iterator[None]:
    """A server on one CPU, from the time when `ready` returns true until the block ends."""
    process = subprocess.Popen(["taskset", "-c", str(cpu), *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        until = time.monotonic() + READY_S
        while not ready(process):
            if process.poll() is not None or time.monotonic() > until:
                raise Absent(f"{command[0]} does not start")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


def figures(command: list[str], environment: dict[str, str] | None = None) -> dict[str, float]:
    """The JSON lines that a program printed on CPU 0."""
    done = subprocess.run(["taskset", "-c", "0", *command], capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise Absent(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["id"]: row["value"] for row in rows}


def iceoryx(bench: Path, cpu: int, rounds: int) -> dict[str, float]:
    """iceoryx 2.0 from Debian: chunks between two processes."""
    program = bench / "peer_iceoryx"
    roudi = shutil.which("iox-roudi")
    if roudi is None or not program.exists():
        raise Absent("iceoryx and libiceoryx-posh-dev are not installed")

    def ready(process: subprocess.Popen[str]) -> bool:
        assert process.stdout is not None
        return "ready for clients" in process.stdout.readline()

    memory = Path("/dev/shm")
    before = set(memory.iterdir())
    try:
        with served([roudi, "--log-level", "error"], cpu, ready):
            return figures([str(program), "--rounds", str(rounds)])
    finally:  # it leaves its memory behind, even after a regular end
        for left in set(memory.iterdir()) - before:
            if left.name in ("iceoryx_mgmt", getpass.getuser()):
                left.unlink()


def plasma(scratch: str, cpu: int, rounds: int) -> dict[str, float]:
    """Plasma of pyarrow 11: arrays between a client that puts and one that gets."""
    python = ENVIRONMENTS / "plasma/bin/python"
    server = next((ENVIRONMENTS / "plasma").glob("lib/*/site-packages/pyarrow/plasma-store-server"), None)
    if server is None:
        raise Absent("pyarrow 11 is not installed")
    socket = Path(scratch) / "plasma"
    with served([str(server), "-m", str(1 << 30), "-s", str(socket)], cpu, lambda _: socket.exists()):
        return figures([str(python), str(HERE / "peer_plasma.py"), "--socket", str(socket), "--rounds", str(rounds)])
