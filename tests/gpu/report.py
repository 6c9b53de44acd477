# SPDX-License-Identifier: Apache-2.0
"""The results of a run, as a page and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import benches


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def steps_table(steps: list[dict[str, Any]]) -> str:
    lines = ["| step | outcome | passed | failed | skipped | s |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {step['name']} | {step['outcome']} | {step['passed']} | {step['failed']} | {len(step['skipped'])} | {step['seconds']} |"
        for step in steps
    ]
    return "\n".join(lines)


def experiment_lines(found: dict[str, Any]) -> list[str]:
    """A heading, failed checks, observations."""
    lines = [f"- **{found['experiment']}** {found['title']}: **{cell(found['outcome'])}**"]
    lines += [f"  - {'held' if held else 'DID NOT HOLD'}: {cell(what)}" for what, held in found["checks"]]
    lines += [f"  - {cell(what)}: {cell(value)}" for what, value in found["seen"]]
    return lines


def not_asked(experiments: list[dict[str, Any]]) -> list[str]:
    """Questions that this driver could not answer: whole experiments, and parts for which it lacks the call."""
    lacking = re.compile(r"^\d+: no (cu\w+)$")
    whole = [
        (found["experiment"], found["outcome"].removeprefix("not run: ")) for found in experiments if found["outcome"].startswith("not run")
    ]
    parts = [
        (f"{found['experiment']}, {what}", f"the driver has no {lack[1]}")
        for found in experiments
        for what, value in found["seen"]
        if (lack := lacking.match(value))
    ]
    return [f"- {what}: {why}" for what, why in whole + parts]


def numbered(experiments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By their numbers; they ran in another order."""
    return sorted(experiments, key=lambda found: (int(re.sub(r"\D", "", found["experiment"]) or 0), found["experiment"]))


def experiments_page(result: dict[str, Any]) -> str:
    parts = ["## Experiments"]
    if result["simulated"]:
        parts.append(
            "**All of them need a card:** here the simulated driver did what it was written to do, which says nothing about hardware."
        )
    experiments = numbered(result["experiments"])
    missing = not_asked(experiments)
    if missing:
        parts.append("Not asked here, and still open:\n\n" + "\n".join(missing))
    parts.append("\n".join(line for found in experiments for line in experiment_lines(found)))
    return "\n\n".join(parts)


def costs_table(experiments: list[dict[str, Any]]) -> str:
    rows = [row for found in experiments for row in found.get("costs", [])]
    if not rows:
        return ""
    lines = ["| call | process | bytes | runs | p50 us | p99 us |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row['symbol']} | {row['process']} | {benches.size_text(row['bytes'])} | {row['runs']} | {row['p50_us']} | {row['p99_us']} |"
        for row in rows
    ]
    return "\n".join(lines)


def page(result: dict[str, Any]) -> str:
    parts = [f"# {'SIMULATED: ' if result['simulated'] else ''}{result['machine']['GPU']}"]
    if result["simulated"]:
        parts.append(
            "On the simulated driver. Nothing here is about a card; times are of this machine's memory, also of the frameworks and PyTorch: they ran on it too."
        )
    if result["running"]:
        parts.append(f"**Cut short:** it ended while it ran {result['running']}. The rest was not run.")
    parts.append("\n".join(f"- {name}: {value}" for name, value in result["machine"].items()))
    parts.append("## Tests\n\n" + steps_table(result["steps"]))
    for step in result["steps"]:
        if step["skipped"]:
            parts.append(f"{step['name']}, skipped:\n\n" + "\n".join(f"- {cell(each)}" for each in step["skipped"]))
        if step["said"]:
            parts.append(f"{step['name']}, what it said:\n\n```\n{step['said']}\n```")
    parts.append("## Benchmarks\n\nMedians of one run, in microseconds. " + f"Reach: {benches.REACH}.\n\n" + benches.table(result["bench"]))
    if result["bench_notes"]:
        parts.append("\n".join(f"- {cell(note)}" for note in result["bench_notes"]))
    parts.append(experiments_page(result))
    costs = costs_table(result["experiments"])
    if costs:
        parts.append("What each call costs:\n\n" + costs)
    parts.append(f"All of it: {result['seconds']:.0f} s.")
    return "\n\n".join(parts) + "\n"


def write(result: dict[str, Any], folder: Path) -> list[Path]:
    """Writes <date>-<device>.md and .json, marked if they are of the simulated driver or of some parts only; each is the
    old one or the new one at any time.
    """
    device = re.sub(r"[^a-z0-9]+", "-", result["machine"]["GPU"].split(",")[0].lower()).strip("-")
    stem = f"{'simulated-' if result['simulated'] else ''}{result['machine']['date'][:10]}-{device}"
    stem += "".join(f"-{part}" for part in result["parts"])
    folder.mkdir(parents=True, exist_ok=True)
    written = {folder / f"{stem}.md": page(result), folder / f"{stem}.json": json.dumps(result, indent=1) + "\n"}
    for file, text in written.items():
        new = file.with_name(file.name + ".new")
        new.write_text(text)
        new.replace(file)
    return [*written]
