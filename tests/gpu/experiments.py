# SPDX-License-Identifier: Apache-2.0
"""Runs the numbered experiments and sums up their calls: how often each was made, its result, its duration."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from steps import Runner, json_lines

# The most valuable first, in case the time ends. Nothing else may have the GPU open during the last one.
GROUPS = {
    "what the code cannot do without": ("E1", "E2", "E17", "E18", "E27", "E9", "E8", "E7", "E16", "E30"),
    "fences": ("E12", "E13", "E11", "E28"),
    "designs": ("E15", "E4", "E5", "E6", "E10", "E3", "E21", "E23", "E24", "E20", "E26", "E14", "E22", "E25"),
    "figures": ("E29", "E19"),
    "alone": ("E3b",),
}
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
    within = ["--small"] if small else ["--limit", str(max(1, int(min(limit, runner.left() - ENDING_S))))]
    command = [str(program), "--driver", driver, *within, name]
    # Two devices only for the experiment that needs them: with several, the current device matters to others.
    machine = {"SIMULATED_CUDA": runner.environment["SIMULATED_CUDA"] + ";devices=2"} if small and name == "E22" else {}
    status, text = runner.output(command, min(limit + ENDING_S, runner.left()), machine)
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


def listed(runner: Runner, program: Path) -> dict[str, tuple[float, float]]:
    """The seconds of every experiment: by estimate, and at most."""
    status, text = runner.output([str(program), "--list"], 10)
    if status != 0:
        raise OSError(f"{program.name} --list ended with {status}: {text}")
    rows = [line.split(maxsplit=3) for line in text.splitlines()]
    return {name: (float(estimate), float(limit)) for name, estimate, limit, _ in rows}
