# SPDX-License-Identifier: Apache-2.0
"""Runs the numbered experiments and sums up their calls: how often each was made, its result, its duration."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from steps import Runner, json_lines

# The most valuable first, in case the time ends: facts that the code cannot do without; those that a design rests on;
# figures. E3b is last, as nothing else may have the GPU open meanwhile. Others come before it, in their order.
FIRST = ("E1", "E2", "E17", "E18", "E9", "E4", "E7", "E8", "E12", "E13", "E5", "E6", "E10", "E11", "E3", "E16", "E21", "E23", "E24", "E20")
LAST = ("E19", "E22", "E3b")
ENDING_S = 5  # the program ends by itself at its limit


def summed(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls of the same process, symbol and result as one row."""
    times: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for line in lines:
        if "us" in line:
            times[line["process"], line["symbol"], line["result"]].append(line["us"])
    return [
        {
            "process": process,
            "symbol": symbol,
            "result": result,
            "calls": len(us),
            "median_us": round(statistics.median(us), 2),
            "max_us": max(us),
        }
        for (process, symbol, result), us in times.items()
    ]


def outcome(name: str, what: str) -> dict[str, Any]:
    return {"experiment": name, "title": "", "outcome": what, "checks": [], "seen": []}


def one(runner: Runner, program: Path, driver: str, name: str, limit: float, small: bool) -> dict[str, Any]:
    """An experiment's outcome, the sums of its calls, and its cost rows."""
    if runner.left() < limit:
        return outcome(name, "not run: no time left")
    command = [str(program), "--driver", driver, *(["--small"] if small else []), name]
    # Two devices only for the experiment that needs them: with several, the current device matters to others.
    machine = {"SIMULATED_CUDA": runner.environment["SIMULATED_CUDA"] + ";devices=2"} if small and name == "E22" else {}
    status, text = runner.output(command, limit + ENDING_S, machine)
    lines = json_lines(text)
    found = next((line for line in lines if "outcome" in line), None)
    if found is None:
        found = outcome(name, f"ended with {status} and no outcome")
    found["limit_s"] = limit
    found["calls"] = summed(lines)
    found["costs"] = [
        {key: line[key] for key in ("process", "symbol", "bytes", "runs", "p50_us", "p99_us")} for line in lines if "p50_us" in line
    ]
    return found


def limits(runner: Runner, program: Path) -> dict[str, float]:
    """The experiments in the order in which they run, and how many seconds each may take."""
    status, text = runner.output([str(program), "--list"], 10)
    if status != 0:
        raise OSError(f"{program.name} --list ended with {status}: {text}")
    known = {name: float(seconds) for name, seconds in (line.split() for line in text.splitlines())}
    rank = [*FIRST, *(name for name in known if name not in FIRST + LAST), *LAST]
    return {name: known[name] for name in rank if name in known}
