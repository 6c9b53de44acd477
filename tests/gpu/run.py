# SPDX-License-Identifier: Apache-2.0
"""Runs all experiments, tests and benchmarks that need a GPU, within ten minutes a command, the most valuable first.
tests/gpu/run starts it.

Exits with 1 if a test fails. An unexpected outcome of an experiment, or a benchmark beyond its reach, is a finding and
not a failure; an experiment without an outcome is a failure. The results are written again after each step, so that a run
that is ended keeps what it had.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import benches
import experiments
import machine
import plan
import pythons
import report
import suites
from plan import Planned
from pythons import Extension, Python
from steps import Runner, Step

HERE = Path(__file__).resolve().parent


@dataclasses.dataclass
class Run:
    """What the steps of a run share, and its result."""

    runner: Runner
    build: Path
    library: str
    simulated: bool
    extension: Extension
    scratch: Path
    folder: Path | None  # of the results
    begun: float
    result: dict[str, Any]

    def begins(self, step: str) -> None:
        """Writes the result so far, which says that this step runs; "" if none does any more."""
        self.result["running"] = step
        self.result["seconds"] = round(time.monotonic() - self.begun, 1)
        if self.folder is not None:
            report.write(self.result, self.folder)

    def ended(self, step: Step) -> None:
        self.result["steps"].append(dataclasses.asdict(step))
        counts = f"{step.passed} passed, {step.failed} failed, {len(step.skipped)} skipped, {step.seconds:.0f} s"
        self.say(f"{step.name:40s} {step.outcome:8s} {counts if step.seconds else ''}")
        if step.said:
            print(step.said, flush=True)

    def say(self, line: str) -> None:
        print(f"[{time.monotonic() - self.begun:4.0f} s] {line}", flush=True)

    def extension_is_built(self, limit: float) -> None:
        for step in self.extension.built(self.runner, limit):
            self.ended(step)

    @functools.cached_property
    def python(self) -> Python:
        """The Python of the frameworks."""
        self.extension_is_built(plan.WAIT_FOR_EXTENSION.limit_s)
        return pythons.simulated(self.runner, self.scratch) if self.simulated else pythons.of_this_machine()


def run_experiment(run: Run, step: Planned) -> None:
    program = run.build / "tests/gpu/gpu_experiments"
    found = experiments.one(run.runner, program, run.library, step.name, step.limit_s, run.simulated)
    run.result["experiments"].append(found)
    run.say(f"{found['experiment']:4s} {found['title']:50s} {found['outcome']}")


def run_test(run: Run, step: Planned) -> None:
    here = suites.Here(run.runner, run.build, run.simulated, lambda: run.python)
    run.ended(suites.TESTS[step.name](here, step.name, step.limit_s))


def run_benchmark(run: Run, step: Planned) -> None:
    try:
        rows, notes = benches.one(run.runner, run.build, run.library, run.simulated, step.name, step.limit_s, lambda: run.python)
    except (OSError, RuntimeError) as error:
        rows, notes = [], [f"{step.name} did not run: {error}"]  # the experiments may show the cause
    run.result["bench"] += rows
    run.result["bench_notes"] += notes
    run.say("\n   ".join([f"{step.name:40s} {len(rows)} figures", *notes]))


def no_time(run: Run, step: Planned) -> None:
    why = f"not run: no time left for its {step.estimate_s:.0f} s"
    run.say(f"{step.name} {why}")
    if step.part == "benchmarks":
        run.result["bench_notes"].append(f"{step.name}: {why}")
    elif step.name in suites.TESTS:
        run.result["steps"].append(dataclasses.asdict(Step(step.name, why)))
    else:
        run.result["experiments"].append(experiments.outcome(step.name, why))


def run_step(run: Run, step: Planned) -> None:
    if step == plan.FACTS:  # they are known
        return
    if step == plan.WAIT_FOR_EXTENSION:
        run.extension_is_built(step.limit_s)
    elif run.runner.left() < step.estimate_s:
        no_time(run, step)
    elif step.part == "benchmarks":
        run_benchmark(run, step)
    elif step.name in suites.TESTS:
        run_test(run, step)
    else:
        run_experiment(run, step)


def planned(build: Path, parts: list[str]) -> list[Planned]:
    return plan.steps(Runner(dict(os.environ), None), build / "tests/gpu/gpu_experiments", parts)


def failures(result: dict[str, Any], parts: list[str]) -> list[str]:
    failed = [step["name"] for step in result["steps"] if step["outcome"] == "failed"]
    failed += [each["experiment"] for each in result["experiments"] if each["outcome"].startswith("ended")]
    if "benchmarks" in parts and not result["bench"]:
        failed.append("benchmarks")
    return failed


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="the build folder, or what stands for it in a bundle")
    parser.add_argument("--simulated", action="store_true", help="libcuda.so.1 is the simulated driver; nothing has a time limit")
    parser.add_argument("--out", type=Path, help="where results are written; with a card tests/gpu/results unless given")
    parser.add_argument("--seconds", type=float, default=plan.WHOLE_RUN_S, help="how long all of it may take on a card")
    parser.add_argument("--extension", action="store_true", help="builds a bundle's extension, beside the experiments")
    parser.add_argument("--plan", action="store_true", help="lists the steps with their seconds, and runs none")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(plan.PARTS)}: all of them in this order unless given")
    wish = parser.parse_intermixed_args()
    if unknown := [part for part in wish.parts if part not in plan.PARTS]:
        parser.error(f"no part is named {', '.join(unknown)}: {', '.join(plan.PARTS)}")
    wish.parts = [part for part in plan.PARTS if part in (wish.parts or plan.PARTS)]
    return wish


def empty_result(wish: argparse.Namespace, facts: dict[str, str]) -> dict[str, Any]:
    return {
        "machine": facts,
        "simulated": wish.simulated,
        "parts": wish.parts if len(wish.parts) < len(plan.PARTS) else [],
        "steps": [],
        "bench": [],
        "bench_notes": [],
        "experiments": [],
    }


def environment_of(wish: argparse.Namespace, driver: str, scratch: str) -> dict[str, str]:
    environment = dict(os.environ)
    environment |= {
        "ARRAYBRIDGE_BUILD": str(wish.build.resolve()),
        "ARRAYBRIDGE_CUDA_DRIVER": driver,
        "ARRAYBRIDGE_DAEMON": str(wish.build.resolve() / "daemon/arraybridged"),
        "TMPDIR": scratch,
    }
    if wish.simulated:
        # As lenient as hardware, with room for the sizes of a small run. Tests choose their own settings.
        environment["SIMULATED_CUDA"] = "guest;memory=1073741824"
    return environment


def main() -> int:
    wish = arguments()
    begun = time.monotonic()
    if wish.plan:
        print(plan.listing(planned(wish.build, wish.parts)))
        return 0
    try:
        facts = machine.facts(wish.simulated)
    except OSError as absent:
        print(f"no card can be used here: {absent}", file=sys.stderr)
        return 69
    steps = planned(wish.build, wish.parts)
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    folder = wish.out or (None if wish.simulated else HERE / "results")
    result = empty_result(wish, facts)
    with tempfile.TemporaryDirectory(prefix="ab-gpu-", ignore_cleanup_errors=True) as scratch:
        # A card's time is short; the simulated driver runs on machines of any speed.
        runner = Runner(environment_of(wish, facts["driver"], scratch), None if wish.simulated else begun + wish.seconds)
        extension = Extension(wish.build, wish.extension, plan.ANY_TIME_S if wish.simulated else plan.BUILD_S)
        run = Run(runner, wish.build, facts["driver"], wish.simulated, extension, Path(scratch), folder, begun, result)
        for step in steps:
            run.begins(step.name)
            run_step(run, step)
        run.extension_is_built(plan.WAIT_FOR_EXTENSION.limit_s)  # for a later command, if none here needed it
        run.begins("")
    print("\n" + report.page(result))
    if folder is not None:
        print(*report.write(result, folder), sep="\n")
    # Again, because of a long output often only the end is kept.
    print(*(f"{step['name']}:\n{step['said']}\n" for step in result["steps"] if step["outcome"] == "failed"), sep="\n")
    failed = failures(result, wish.parts)
    print(f"failed: {', '.join(failed)}" if failed else "nothing failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
