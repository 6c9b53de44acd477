"""Runs the numbered experiments and sums up their calls: how often each was made, its result, its duration."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from steps import Runner, json_lines

# The experiments that code relies on first; the others in their order.
FIRST = ("E1", "E2", "E3", "E3b", "E4", "E5", "E7", "E8", "E9", "E12", "E16", "E17", "E18", "E20")
WATCHDOG_S = 25  # the program's own is 20


def summed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls of the same process, symbol and result as one row."""
    times: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for line in lines:
        if "us" in line:
            times[line["process"], line["symbol"], line["result"]].append(line["us"])
    return [
        {"process": process, "symbol": symbol, "result": result, "calls": len(us), "median_us": round(statistics.median(us), 2), "max_us": max(us)}
        for (process, symbol, result), us in times.items()
    ]


def one(runner: Runner, program: Path, driver: str, name: str, small: bool) -> dict[str, Any]:
    """An experiment's outcome, the sums of its calls, and its cost rows."""
    if runner.left() < WATCHDOG_S:
        return {"experiment": name, "title": "", "outcome": "not run: no time left", "checks": [], "seen": []}
    command = [str(program), "--driver", driver, *(["--small"] if small else []), name]
    # Two devices only for the experiment that needs them: with several, the current device matters to others.
    machine = {"SIMULATED_CUDA": runner.environment["SIMULATED_CUDA"] + ";devices=2"} if small and name == "E22" else {}
    status, text = runner.output(command, WATCHDOG_S, machine)
    lines = json_lines(text)
    found = next((line for line in lines if "outcome" in line), None)
    if found is None:
        found = {"experiment": name, "title": "", "outcome": f"ended with {status} and no outcome", "checks": [], "seen": []}
    found["calls"] = summed(lines)
    found["costs"] = [{key: line[key] for key in ("process", "symbol", "bytes", "runs", "p50_us", "p99_us")} for line in lines if "p50_us" in line]
    return found


def run(runner: Runner, program: Path, driver: str, small: bool) -> list[dict[str, Any]]:
    status, text = runner.output([str(program), "--list"], 10)
    if status != 0:
        return [{"experiment": "all", "title": "", "outcome": f"ended with {status}: {text}", "checks": [], "seen": []}]
    names = text.split()
    order = [name for name in FIRST if name in names] + [name for name in names if name not in FIRST]
    found = {name: one(runner, program, driver, name, small) for name in order}
    return [found[name] for name in names]
