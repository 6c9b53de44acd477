# SPDX-License-Identifier: Apache-2.0
"""Writes from the results of runs on cards what has been shown on which: ``status.py [RESULT.json...]``, all of
tests/gpu/results unless given.

It fills the last column of docs/gpu-status.md, and the README's table of times on a GPU. Of several results for one step
the latest counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import benches

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs/gpu-status.md"
README = ROOT / "README.md"
BEGIN = "<!-- tests/gpu/status.py writes this table from results of a card -->"
END = "<!-- end of the table of times on a GPU -->"
NOWHERE = "–"
GOOD = ("as expected", "recorded", "passed", "measured")
Result = dict[str, Any]
# Rows of the README: what, the figure, its floor or peer, their size.
TIMES = (
    ("`put` of an array on the GPU", "put_d2d", "floor_d2d", benches.GIB),
    ("`get`, memory mapped before", "get_warm", "get_cold", benches.MIB),
    ("hand 1 MiB to another process", "hand_off_sync", "host_fallback", benches.MIB),
    ("the same, with an event", "hand_off_event", "host_fallback", benches.MIB),
    ("`Broker.put` and `get` of a tensor", "broker_torch", "torch_new", 256 * benches.MIB),
)


def card(result: Result) -> str:
    """NVIDIA H200, 2026-12-01"""
    return f"{result['machine']['GPU'].split(',')[0]}, {result['machine']['date'][:10]}"


def of_cards(results: Iterable[Result]) -> list[Result]:
    """Without those of the simulated driver, the oldest first."""
    return sorted((each for each in results if not each["simulated"]), key=lambda each: str(each["machine"]["date"]))


def outcomes(results: list[Result]) -> dict[str, tuple[str, str]]:
    """Of each step that ran: its outcome, and the card."""
    found: dict[str, tuple[str, str]] = {}
    for result in results:
        ran = [(each["experiment"], each["outcome"]) for each in result["experiments"]]
        ran += [(each["name"], each["outcome"]) for each in result["steps"]]
        ran += [(benches.program_of(row["id"]), "measured") for row in result["bench"]]
        found |= {name: (outcome, card(result)) for name, outcome in ran if not outcome.startswith("not run")}
    return found


def names(cell: str) -> list[str]:
    return [name.strip(" `") for name in cell.split(";")]


def shown(steps: list[str], found: dict[str, tuple[str, str]]) -> str:
    """Where all of them ran, and which of them did not end well; or that some did not run."""
    ran = [name for name in steps if name in found]
    if not ran:
        return NOWHERE
    bad = [f"{name} {found[name][0]}" for name in ran if found[name][0] not in GOOD]
    bad += [f"{name} has not run" for name in steps if name not in found]
    return ": ".join([found[ran[-1]][1], *(["; ".join(bad)] if bad else [])]).replace("|", "\\|")


def rows(page: str) -> list[list[str]]:
    """The cells of the table: what, why, the steps that show it, where."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def filled(page: str, found: dict[str, tuple[str, str]]) -> str:
    """The page with its last column."""
    for cells in rows(page):
        line = "| " + " | ".join(cells) + " |"
        page = page.replace(line, "| " + " | ".join([*cells[:-1], shown(names(cells[-2]), found)]) + " |")
    return page


def microseconds(value: float) -> str:
    return f"{value / 1000:,.2f} ms" if value >= 10_000 else f"{value:,.1f} µs"


def times(results: list[Result]) -> str:
    """The README's table of the latest card that was measured, or nothing."""
    measured = [result for result in results if result["bench"]]
    if not measured:
        return ""
    figures = {(row["id"], row["bytes"]): row["us"] for row in measured[-1]["bench"]}
    lines = [f"On {card(measured[-1])}, CUDA {measured[-1]['machine']['CUDA of the driver']}; medians of one run:", ""]
    lines += ["| What | Size | Time | Floor or peer of the same run | Ratio |", "|---|---|---|---|---|"]
    for what, name, peer, size in TIMES:
        if (us := figures.get((name, size))) and (floor := figures.get((peer, size))):
            about = f"{microseconds(floor)} ({benches.WORK[peer]})"
            lines.append(f"| {what} | {benches.size_text(size)} | {microseconds(us)} | {about} | {us / floor:.2f} |")
    return "\n".join(["", *lines, "", ""])


def with_times(readme: str, table: str) -> str:
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}{END}{after}"


def main() -> None:
    files = [Path(name) for name in sys.argv[1:]] or sorted((HERE / "results").glob("*.json"))
    results = of_cards(json.loads(file.read_text()) for file in files)
    PAGE.write_text(filled(PAGE.read_text(), outcomes(results)))
    README.write_text(with_times(README.read_text(), times(results)))
    print(f"{len(results)} results of cards: {PAGE.relative_to(ROOT)}, {README.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
