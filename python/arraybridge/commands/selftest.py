# SPDX-License-Identifier: Apache-2.0
"""Converts between all installed frameworks, in this process and through a broker of its own.

Prints a table of shared, copied, failed and skipped conversions. A framework is skipped if it is not installed or has
no device here. The exit status is 1 if a conversion failed, or if a framework that was named is skipped.
"""

from __future__ import annotations

import argparse
import warnings

from arraybridge import adapters
from arraybridge.broker import Broker
from arraybridge.commands import samples, tables
from arraybridge.errors import CopyWarning
from arraybridge.planner import Plan

SHAPE = (24, 32)
DTYPES = ("float32", "int32", "uint8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("frameworks", nargs="*", help="only these; default: all installed ones")


def run(wishes: argparse.Namespace) -> int:
    requested = list(dict.fromkeys(wishes.frameworks)) or adapters.NAMES
    missing = {name: reason for name in requested if (reason := samples.missing(name))}
    names = [name for name in requested if name not in missing]
    failures = [f"{name} is not available here: {reason}" for name, reason in missing.items()] if wishes.frameworks else []
    if not names:
        print("\n".join(failures))
        return 1
    with Broker(start="private") as broker, warnings.catch_warnings():
        warnings.simplefilter("ignore", CopyWarning)
        cells = {(source, target): _cell(broker, source, target, failures) for source in names for target in names}
    rows = [[source, *(cells[source, target] for target in names)] for source in names]
    print(tables.markdown(["from \\ to", *names], rows))
    pairs = "1 pair" if len(names) == 1 else f"{len(names) ** 2} pairs"
    print(f"\n{pairs}, each as {', '.join(DTYPES)}, converted and put and got: {len(failures)} failed")
    for failure in failures:
        print(failure)
    if missing and not wishes.frameworks:
        print(f"Skipped: {'; '.join(f'{name} ({reason})' for name, reason in missing.items())}")
    return 1 if failures else 0


def _cell(broker: Broker, source: str, target: str, failures: list[str]) -> str:
    words = set()
    for dtype in DTYPES:
        try:
            values = samples.numbers(SHAPE, dtype)
            array = samples.made(broker, source, values)
            converted, plan = broker.convert(array, target, explain=True)
            got = broker.put(array).to(target)
            for way, result in (("convert", converted), ("put and get", got)):
                if not samples.same(broker, result, values):
                    failures.append(f"{source} to {target}, {dtype}: {way} changed the values")
            words.add(_word(plan))
        except Exception as error:
            # Any exception of a framework is a result, and does not end the test.
            failures.append(f"{source} to {target}, {dtype}: {type(error).__name__}: {error}")
            words.add("FAILED")
    return " / ".join(sorted(words))


def _word(plan: Plan) -> str:
    if plan.route == "identity":
        return "same"
    if plan.zero_copy:
        return "shared"
    return f"{plan.copies} {'copy' if plan.copies == 1 else 'copies'}"
