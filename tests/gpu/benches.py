# SPDX-License-Identifier: Apache-2.0
"""Runs the GPU benchmarks beside their floor and their peer; a row is one figure for one size."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import reaper
from pythons import Python
from steps import Runner, json_lines

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CARD_SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB, 4 * GIB)
SMALL_SIZES = (4 * KIB, MIB)
TORCH_BYTES_MAX = GIB
TORCH = "bench_torch.py"

WORK = {
    "floor_d2d": "cuMemcpyDtoDAsync and the wait for it",
    "put_d2d": "put of an array on the GPU, Publish included",
    "get_cold": "first get of a process that has a context",
    "get_warm": "get, the arena mapped",
    "hand_off_sync": "put here, told, got there, acknowledged",
    "put_event": "put that publishes with an event and waits for nothing",
    "hand_off_event": "the same hand-off with an event: nobody waits on the host",
    "host_fallback": "the same through host memory",
    "torch_resend": "torch.multiprocessing, the same tensor again",
    "torch_new": "torch.multiprocessing, a new tensor each time",
    "broker_torch": "Broker.put and get of a torch tensor, acknowledged",
}
REACH = "D2D put at least 0.9 x the copy's rate at 1 GiB; warm get at most 20 us at every size; Broker.put and get at least 5 x as quick as torch.multiprocessing"


def program_of(row: str) -> str:
    """The benchmark that measures this row."""
    return TORCH if "torch" in row else "gpu_bench"


@contextlib.contextmanager
def daemon(program: Path, driver: str, environment: dict[str, str]) -> Iterator[str]:
    """A private daemon; yields the directory of its sockets."""
    with tempfile.TemporaryDirectory(prefix="ab-gpu-") as directory:
        read, write = os.pipe()
        command = [
            str(program),
            "--directory",
            directory,
            "--ready-fd",
            str(write),
            "--listen",
            "off",
            "--log-level",
            "error",
            "--cuda-driver",
            driver,
        ]
        process = subprocess.Popen(reaper.command(None, command), pass_fds=[write], env=environment, stdin=subprocess.DEVNULL)
        os.close(write)
        try:
            with os.fdopen(read) as lines:
                if lines.readline() != "ready\n":
                    raise RuntimeError("arraybridged did not start")
            yield directory
        finally:
            process.terminate()
            try:
                process.wait(2 * reaper.DYING_S)
            except subprocess.TimeoutExpired:
                process.kill()


def one(
    runner: Runner, build: Path, driver: str, small: bool, name: str, limit: float, python: Callable[[], Python]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows {id, bytes, us} of this benchmark, and notes on missing measurements with the reason."""
    sizes: tuple[int, ...] = SMALL_SIZES if small else CARD_SIZES
    program = [str(build / "tests/gpu" / name), "--driver", driver]
    more: dict[str, str] = {}
    if name == TORCH:
        if not python().sees_a_gpu_by_torch(runner):
            return [], [f"torch.multiprocessing: {python().missing or 'torch is not here, or sees no GPU'}"]
        sizes = tuple(size for size in sizes if size <= TORCH_BYTES_MAX)
        program, more = [python().program, str(Path(__file__).with_name(name))], python().environment
    with daemon(build / "daemon/arraybridged", driver, runner.environment) as address:
        given = ["--address", address, "--sizes", ",".join(map(str, sizes)), "--rounds", str(5 if small else 15)]
        limit = min(limit, runner.left())
        status, text = runner.output([*program, *given], limit, more)
    lines = json_lines(text)
    notes = [f"{name}: {line['note']}" for line in lines if "note" in line]
    if status != 0:
        said = " | ".join(text.splitlines()[-3:]) if status != reaper.TOOK_TOO_LONG else f"no answer within {limit:.0f} s"
        notes.append(f"{name}: ended with {status}: {said}")
    return [{"id": line["id"], "bytes": int(line["bytes"]), "us": round(line["us"], 2)} for line in lines if "us" in line], notes


def size_text(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def table(rows: list[dict[str, Any]]) -> str:
    """Microseconds, one line per figure and one column per size; then the ratios of the goals."""
    sizes = sorted({row["bytes"] for row in rows})
    figures = {(row["id"], row["bytes"]): row["us"] for row in rows}
    lines = ["| us | " + " | ".join(map(size_text, sizes)) + " |", "|---|" + "---|" * len(sizes)]

    def line(title: str, values: list[float | None], digits: int) -> None:
        lines.append(f"| {title} | " + " | ".join("" if value is None else f"{value:.{digits}f}" for value in values) + " |")

    for name, work in WORK.items():
        if any((name, size) in figures for size in sizes):
            line(work, [figures.get((name, size)) for size in sizes], 1)

    def ratio(title: str, above: str, below: str) -> None:
        pairs = [(figures.get((above, size)), figures.get((below, size))) for size in sizes]
        values = [None if a is None or not b else a / b for a, b in pairs]
        if any(value is not None for value in values):
            line(title, values, 2)

    ratio("*rate of a put against the copy's*", "floor_d2d", "put_d2d")
    # Python compared with Python; the hand-offs above are in C++.
    ratio("*torch, same tensor / Broker*", "torch_resend", "broker_torch")
    ratio("*torch, new tensor / Broker*", "torch_new", "broker_torch")
    return "\n".join(lines)
