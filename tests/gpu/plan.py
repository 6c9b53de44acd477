# SPDX-License-Identifier: Apache-2.0
"""The steps of a run in their order, the most valuable first, each with its seconds on a card: by estimate and at most.

The first command runs the experiments, the second one tests and benchmarks; a machine may be lent for a quarter of an
hour in all, and ten minutes a command.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import experiments
from steps import Runner

PARTS = ("experiments", "tests", "benchmarks")
COMMANDS = (("experiments",), ("tests", "benchmarks"))
TOTAL_S = 13 * 60
WHOLE_RUN_S = 570  # of one command


@dataclass(frozen=True)
class Planned:
    part: str
    group: str
    name: str
    estimate_s: float
    limit_s: float


BUILD_S = 150  # then a prebuilt extension is taken
ANY_TIME_S = 24 * 3600  # on the simulated driver
# The parts of these names: the group's name, the step's, its estimate and its limit.
TESTS = (
    ("the product", "integration, GPU memory", 40, 120),
    ("the product", "real frameworks", 110, 200),
    ("the product", "conformance, descriptors", 15, 60),
    ("the product", "client's mappers", 20, 60),
    ("the product", "foreign client, cudaIpcMemHandle", 15, 60),
    ("what needs little of a card", "declarations against <cuda.h>", 4, 60),
    ("what needs little of a card", "integration, all kinds of memory", 25, 90),
    ("what needs little of a card", "conformance, cudaIpcMemHandle", 0, 120),
    ("what needs little of a card", "integration, fences", 0, 120),
    ("what needs little of a card", "integration, host memory", 20, 60),
)
BENCHMARKS = (("figures", "gpu_bench", 90, 150), ("figures", "bench_torch.py", 70, 120))
# A run begins with the facts about the machine. The extension is built beside the first experiments, and a hand-off by
# the product comes as soon as it can: it says more than all that follows.
FACTS = Planned("experiments", "facts", "facts", 10, 60)
WAIT_FOR_EXTENSION = Planned("experiments", "the product", "extension", 20, 170)
FIRST_HAND_OFF = Planned("experiments", "the product", "a first hand-off", 25, 60)
PRODUCT_AFTER = "fences"


def experiment_steps(runner: Runner, program: Path) -> list[Planned]:
    """Raises OSError: the program does not list its experiments."""
    known = experiments.listed(runner, program)
    planned = []
    for group, names in experiments.GROUPS.items():
        planned += [Planned("experiments", group, name, *known[name]) for name in names]
        if group == PRODUCT_AFTER:
            planned += [WAIT_FOR_EXTENSION, FIRST_HAND_OFF]
    return planned


def steps(runner: Runner, program: Path, parts: list[str]) -> list[Planned]:
    planned = [FACTS]
    if "experiments" in parts:
        planned += experiment_steps(runner, program)
    if "tests" in parts:
        planned += [Planned("tests", *words) for words in TESTS]
    if "benchmarks" in parts:
        planned += [Planned("benchmarks", *words) for words in BENCHMARKS]
    return planned


def listing(planned: list[Planned]) -> str:
    """A table, with the sum of the estimates so far."""
    lines = [f"{'part':12s} {'group':34s} {'step':36s} {'s':>4s} {'limit':>5s} {'sum':>5s}"]
    total = 0.0
    for each in planned:
        total += each.estimate_s
        lines.append(f"{each.part:12s} {each.group:34s} {each.name:36s} {each.estimate_s:4.0f} {each.limit_s:5.0f} {total:5.0f}")
    return "\n".join(lines)
