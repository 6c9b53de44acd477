# SPDX-License-Identifier: Apache-2.0
"""Measures the C++ rows of two builds in turns and prints them side by side.

    python tests/bench/compare.py OLD NEW [--turns 5] [--rounds 9]

OLD and NEW are build folders of the release preset, of two states of the project. Every turn measures both on one CPU
and on two, with a daemon of their own build; the table has the medians of the turns. The column new / old has the
result; a floor that differs between the two builds shows how much the machine was disturbed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bench

CPU_OF_DAEMON = {"one": 0, "two": 1}


class Key(NamedTuple):
    row: str
    placement: str


class Figure(NamedTuple):
    value: float
    floor: float


def rows_of(build: Path, placement: str, rounds: int) -> Iterator[dict[str, Any]]:
    """All rows with a daemon of this build on the other side."""
    programs, cpu = build / "tests/bench", CPU_OF_DAEMON[placement]
    with tempfile.TemporaryDirectory(prefix="arraybridge-bench-") as scratch:
        home, echo = f"{scratch}/broker", f"{scratch}/echo"
        os.mkdir(home, 0o700)
        daemon = [str(build / "daemon/arraybridged"), "--directory", home, "--log-level", "error"]
        common = ["--address", home, "--rounds", str(rounds)]
        with (
            bench.running([str(programs / "floor_echo"), "--socket", echo], cpu),
            bench.running(daemon, cpu, ready_fd=True, knows=placement == "one"),
        ):
            yield from bench.measured([str(programs / "bench_lifeline"), "--echo", echo, *common])
            channel = ["--largest-mib", "64", "--peer-cpu", str(cpu)]
            yield from bench.measured([str(programs / "bench_channel"), "--echo", echo, *channel, *common])
            # The program had another name before session queues existed.
            unwaited = next(each for each in ("bench_unwaited", "bench_ring") if (programs / each).exists())
            yield from bench.measured([str(programs / unwaited), *common])
        for program in ("bench_hazards", "bench_withdraw"):
            yield from bench.measured([str(programs / program), "--rounds", str(rounds)])


def table(found: dict[Key, dict[str, list[Figure]]]) -> str:
    lines = ["| row | CPUs | old | new | new / old | floor, old | floor, new |", "|---" * 7 + "|"]
    for key, by_build in sorted(found.items()):
        if set(by_build) != {"old", "new"}:
            continue
        old, new = (Figure(*map(statistics.median, zip(*by_build[which], strict=True))) for which in ("old", "new"))
        lines.append(
            f"| `{key.row}` | {key.placement} | {old.value:.2f} | {new.value:.2f} | {new.value / old.value:.2f} "
            f"| {old.floor:.2f} | {new.floor:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=9)
    wish = parser.parse_args()
    found: dict[Key, dict[str, list[Figure]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(wish.turns):
        for which, build in (("old", wish.old), ("new", wish.new)):
            for placement in CPU_OF_DAEMON:
                for row in rows_of(build.resolve(), placement, wish.rounds):
                    if "value" in row:
                        found[Key(row["id"], placement)][which].append(Figure(row["value"], row.get("floor", 0.0)))
    print(table(found))


if __name__ == "__main__":
    main()
