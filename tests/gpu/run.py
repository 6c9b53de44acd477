# SPDX-License-Identifier: Apache-2.0
"""Runs all tests, benchmarks and experiments that need a GPU, within ten minutes, the most valuable first. tests/gpu/run
starts it.

Exits with 1 if a test fails. An unexpected outcome of an experiment, or a benchmark beyond its reach, is a finding and
not a failure; an experiment without an outcome is a failure. The results are written again after each piece, so that a
run that is ended keeps what it had.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import benches
import experiments
import machine
import pythons
import report
from pythons import Extension, Python
from steps import Runner, Step

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
WHOLE_RUN_S = 570
# The tests of the client's mappers that need neither several devices nor failing calls.
MAPPERS_ON_A_CARD = ":".join(
    [
        "*.TheProducerWritesAndTheOwnerSeesIt/*",
        "*.RefusesAWrongSizeAndLeavesNothing/*",
        "*.RefusesWhatIsNoHandleOfItsKind/*",
        "*.TwoMappingsOfOneBlockLiveAndDieApart/*",
        "*.AnOwnerMayFreeWhenTheLastMappingHasGone/*",
        "*.AForkedChildNeitherMapsNorUnmaps/*",
    ]
)


@dataclasses.dataclass
class Run:
    """What the pieces of a run share, and its result."""

    runner: Runner
    build: Path
    library: str
    simulated: bool
    extension: Extension
    scratch: Path
    folder: Path | None  # of the results
    begun: float
    result: dict[str, Any]

    def begins(self, piece: str) -> None:
        """Writes the result so far, which says that this piece ran; "" if none does any more."""
        self.result["running"] = piece
        self.result["seconds"] = round(time.monotonic() - self.begun, 1)
        if self.folder is not None:
            report.write(self.result, self.folder)

    def ended(self, step: Step) -> None:
        self.result["steps"].append(dataclasses.asdict(step))
        counts = f"{step.passed} passed, {step.failed} failed, {len(step.skipped)} skipped, {step.seconds:.0f} s"
        print(f"   {step.name:40s} {step.outcome:8s} {counts if step.seconds else ''}", flush=True)
        if step.said:
            print(step.said, flush=True)

    def extension_is_built(self) -> None:
        for step in self.extension.built(self.runner, 300):
            self.ended(step)

    @functools.cached_property
    def python(self) -> Python:
        """The Python of the frameworks."""
        self.extension_is_built()
        return pythons.simulated(self.runner, self.scratch) if self.simulated else pythons.of_this_machine()


def frameworks(run: Run, name: str) -> Step:
    if run.python.missing:
        return Step(name, f"not run: {run.python.missing}")
    # The tests find the installed frameworks, and skip the others.
    return run.runner.pytest(name, [run.python.program, str(HERE / "frameworks")], 150, run.python.environment)


def mappers(run: Run, name: str) -> Step:
    return run.runner.gtest(name, run.build / "tests/unit/client/client_cuda_test", 90, only="*" if run.simulated else MAPPERS_ON_A_CARD)


def foreign_client(run: Run, name: str) -> Step:
    if not machine.has("grpc") or not machine.has("pytest"):
        return Step(name, "not run: grpcio or pytest is missing")
    chosen = [] if run.simulated else ["-k", "two_processes or killed_writer"]
    return run.runner.pytest(name, [sys.executable, str(ROOT / "tests/foreign/test_cuda_ipc.py"), *chosen], 90)


def legacy_conformance(run: Run, name: str) -> Step:
    if not run.simulated:
        return Step(name, "not run: a card lets no process open its own handle; the integration tests open it in another one")
    return run.runner.gtest(name, run.build / "tests/conformance/conformance_memory_test", 120, only="*CudaIpc")


def fences(run: Run, name: str) -> Step:
    if not run.simulated:
        return Step(name, "not run: a card decides by itself when work happens; E11 and the frameworks look at order there")
    return run.runner.gtest(name, run.build / "tests/integration/cuda_fence_test", 120)


def against_the_toolkit(run: Run, name: str) -> Step:
    """Compares our declarations of the driver's interface with the toolkit's."""
    headers = machine.toolkit()
    if headers is None:
        return Step(name, "not run: no toolkit is here")
    sources = [ROOT / f"tests/unit/boundary/{each}.cc" for each in ("driver_abi_test", "driver_abi_newer_test")]
    return run.runner.compiles(name, sources, [ROOT, run.build / "include", headers], 60)


def gtest(path: str, limit: float, only: str = "*") -> Callable[[Run, str], Step]:
    return lambda run, name: run.runner.gtest(name, run.build / path, limit, only=only)


# Every test that can use the driver under test; what says most about a card comes first, what needs none last.
TESTS: dict[str, Callable[[Run, str], Step]] = {
    "real frameworks": frameworks,
    "integration, GPU memory": gtest("tests/integration/cuda_processes_test", 180),
    "conformance, descriptors": gtest("tests/conformance/conformance_memory_test", 120, "*CudaVmm"),
    "client's mappers": mappers,
    "foreign client, cudaIpcMemHandle": foreign_client,
    "declarations against <cuda.h>": against_the_toolkit,
    "integration, all kinds of memory": gtest("tests/integration/all_kinds_test", 90),
    "conformance, cudaIpcMemHandle": legacy_conformance,
    "integration, fences": fences,
    "integration, host memory": gtest("tests/integration/two_processes_test", 60),
}


def run_experiments(run: Run) -> None:
    program = run.build / "tests/gpu/gpu_experiments"
    try:
        limits = experiments.limits(run.runner, program)
    except OSError as error:
        run.result["experiments"].append(experiments.outcome("all", f"ended: {error}"))
        return
    for name, limit in limits.items():
        run.begins(name)
        found = experiments.one(run.runner, program, run.library, name, limit, run.simulated)
        run.result["experiments"].append(found)
        print(f"   {found['experiment']:4s} {found['title']:50s} {found['outcome']}", flush=True)


def run_tests(run: Run) -> None:
    for name, test in TESTS.items():
        run.begins(name)
        run.ended(test(run, name))


def run_benchmarks(run: Run) -> None:
    run.begins("benchmarks")
    try:
        rows, notes = benches.run(run.runner, run.build, run.library, run.simulated, run.python)
    except (OSError, RuntimeError) as error:
        rows, notes = [], [f"no benchmark ran: {error}"]  # the experiments may show the cause
    run.result |= {"bench": rows, "bench_notes": notes}
    print(f"   {len(rows)} figures", *notes, sep="\n   ", flush=True)


PARTS: dict[str, Callable[[Run], None]] = {"experiments": run_experiments, "tests": run_tests, "benchmarks": run_benchmarks}


def failures(result: dict[str, Any], parts: list[str]) -> list[str]:
    failed = [step["name"] for step in result["steps"] if step["outcome"] == "failed"]
    failed += [each["experiment"] for each in result["experiments"] if each["outcome"].startswith("ended")]
    if "benchmarks" in parts and not result["bench"]:
        failed.append("benchmarks")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="the build folder, or what stands for it in a bundle")
    parser.add_argument("--simulated", action="store_true", help="libcuda.so.1 is the simulated driver; nothing has a time limit")
    parser.add_argument("--out", type=Path, help="where results are written; with a card tests/gpu/results unless given")
    parser.add_argument("--seconds", type=float, default=WHOLE_RUN_S, help="how long all of it may take on a card")
    parser.add_argument("--extension", action="store_true", help="builds a bundle's extension, beside the experiments")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}: all of them in this order unless given")
    wish = parser.parse_intermixed_args()
    if unknown := [part for part in wish.parts if part not in PARTS]:
        parser.error(f"no part is named {', '.join(unknown)}: {', '.join(PARTS)}")
    begun = time.monotonic()
    try:
        facts = machine.facts(wish.simulated)
    except OSError as absent:
        print(f"no card can be used here: {absent}", file=sys.stderr)
        return 69
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    parts = [part for part in PARTS if part in (wish.parts or PARTS)]
    folder = wish.out or (None if wish.simulated else HERE / "results")
    with tempfile.TemporaryDirectory(prefix="ab-gpu-") as scratch:
        environment = dict(os.environ)
        environment |= {
            "ARRAYBRIDGE_BUILD": str(wish.build.resolve()),
            "ARRAYBRIDGE_CUDA_DRIVER": facts["driver"],
            "ARRAYBRIDGE_DAEMON": str(wish.build.resolve() / "daemon/arraybridged"),
            "TMPDIR": scratch,
        }
        if wish.simulated:
            # As lenient as hardware, with room for the sizes of a small run. Tests choose their own settings.
            environment["SIMULATED_CUDA"] = "guest;memory=1073741824"
        result: dict[str, Any] = {
            "machine": facts,
            "simulated": wish.simulated,
            "parts": parts if len(parts) < len(PARTS) else [],
            "steps": [],
            "bench": [],
            "bench_notes": [],
            "experiments": [],
        }
        # A card's time is short; the simulated driver runs on machines of any speed.
        runner = Runner(environment, None if wish.simulated else begun + wish.seconds)
        extension = Extension(wish.build, wish.extension)
        run = Run(runner, wish.build, facts["driver"], wish.simulated, extension, Path(scratch), folder, begun, result)
        for part in parts:
            PARTS[part](run)
        run.extension_is_built()  # for a later command, if none here needed it
        run.begins("")
    print("\n" + report.page(result))
    if folder is not None:
        print(*report.write(result, folder), sep="\n")
    failed = failures(result, parts)
    print(f"failed: {', '.join(failed)}" if failed else "nothing failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
