# SPDX-License-Identifier: Apache-2.0
"""Measures the ways from one framework to another, by size: time and copied bytes.

Prints Markdown; `--plot FILE.png` draws it with matplotlib. Every time is the median of several rounds on this machine.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from arraybridge.adapters import ensure_module
from arraybridge.broker import Broker
from arraybridge.commands import samples, tables
from arraybridge.errors import CopyWarning, FrameworkNotAvailable, OutOfMemory, ZeroCopyUnavailable

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Row(NamedTuple):
    """One measurement: time in seconds, sizes in bytes."""

    method: str
    size: int
    seconds: float
    copied: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", default="numpy", help="default: numpy")
    parser.add_argument("--target", default="torch", help="default: torch")
    parser.add_argument("--sizes", type=_sizes, default=_sizes("4K,1M,64M"), help="bytes; default: 4K,1M,64M")
    parser.add_argument("--rounds", type=_rounds, default=15, help="rounds of each measurement; default: 15")
    parser.add_argument("--output", type=_file, help="also write the Markdown to this file")
    parser.add_argument("--plot", type=_file, help="also write a plot to this PNG file")


def run(wishes: argparse.Namespace) -> int:
    """Raises:
    FrameworkNotAvailable: source, target, or matplotlib for a plot. OutOfMemory: for arrays of a requested size.
    """
    requested = (wishes.source, wishes.target)
    for name in set(requested) - set(samples.installed(requested)):
        raise FrameworkNotAvailable("array", name, "detect", f"{name} is not available here")
    pyplot = None if wishes.plot is None else _pyplot()
    with Broker(start="private") as broker, warnings.catch_warnings():
        warnings.simplefilter("ignore", CopyWarning)
        rows = [row for size in wishes.sizes for row in _measured(broker, wishes, size)]
    text = _markdown(wishes, rows)
    print(text)
    if wishes.output is not None:
        wishes.output.write_text(f"{text}\n", encoding="utf-8")
    if pyplot is not None:
        _draw(pyplot, wishes, rows)
    return 0


def _measured(broker: Broker, wishes: argparse.Namespace, size: int) -> list[Row]:
    try:
        values = samples.numbers((max(1, size // 4),))
    except MemoryError as error:
        raise OutOfMemory(f"not enough memory for arrays of {size:,} bytes; choose smaller sizes") from error
    array = samples.made(broker, wishes.source, values)
    target = wishes.target
    share = broker.put(array)

    def pickled() -> Any:
        return broker.convert(pickle.loads(pickle.dumps(broker.convert(array, "numpy"))), target)

    methods: dict[str, tuple[Callable[[], Any], int | None]] = {
        "convert": (lambda: broker.convert(array, target), None),
        "convert, copy=False": (lambda: broker.convert(array, target, copy=False), None),
        "convert, copy=True": (lambda: broker.convert(array, target, copy=True), None),
        "put and get": (lambda: broker.put(array).to(target), 0),
        "get of a share": (lambda: broker.get(share, target), None),
        "pickle": (pickled, 2 * values.nbytes),
    }
    rows = []
    for method, (call, more) in methods.items():
        try:
            call()
        except ZeroCopyUnavailable:
            continue  # the table omits the row
        plan = broker.last_plan
        copied = (0 if plan is None else plan.copied_bytes) + (more or 0)
        if method == "put and get":
            copied += values.nbytes
        rows.append(Row(method, values.nbytes, _median(call, wishes.rounds), copied))
    return rows


def _median(call: Callable[[], Any], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - begun)
        del result
    return statistics.median(times)


def _markdown(wishes: argparse.Namespace, rows: Sequence[Row]) -> str:
    table = tables.markdown(
        ["method", "bytes", "microseconds", "bytes copied"],
        [[row.method, f"{row.size:,}", f"{row.seconds * 1e6:,.1f}", f"{row.copied:,}"] for row in rows],
    )
    return f"# {wishes.source} to {wishes.target}\n\nMedians of {wishes.rounds} rounds.\n\n{table}"


def _pyplot() -> Any:
    # Only files: needs no display.
    ensure_module("matplotlib").use("agg")
    return ensure_module("matplotlib.pyplot")


def _draw(pyplot: Any, wishes: argparse.Namespace, rows: Sequence[Row]) -> None:
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for method in dict.fromkeys(row.method for row in rows):
        points = [(row.size, row.seconds * 1e6) for row in rows if row.method == method]
        axes.loglog(*zip(*points, strict=True), marker="o", label=method)
    axes.set(xlabel="bytes", ylabel="microseconds", title=f"{wishes.source} to {wishes.target}")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.savefig(wishes.plot, format="png", dpi=120, bbox_inches="tight")
    pyplot.close(figure)


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return int(text)


def _file(text: str) -> Path:
    # Checked now, not after the measurement.
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a folder; name a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


def _sizes(text: str) -> list[int]:
    found = []
    for part in text.upper().split(","):
        number, unit = (part[:-1], part[-1]) if part[-1:] in _UNITS and part[-1:] else (part, "")
        if not number.isdecimal() or int(number) == 0:
            raise argparse.ArgumentTypeError(f"a size must be a number of bytes with K, M or G, not {part!r}")
        found.append(int(number) * _UNITS[unit])
    return found
