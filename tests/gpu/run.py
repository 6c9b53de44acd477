"""Runs all tests, benchmarks and experiments that need a GPU, within ten minutes. tests/gpu/run starts it.

Exits with 1 if a test fails. An unexpected outcome of an experiment, or a benchmark beyond its reach, is a finding and
not a failure; an experiment without an outcome is a failure.
"""

from __future__ import annotations

import argparse
import dataclasses
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
import pythons
import report
from pythons import Python
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
        "*.AReadersWriteThroughAVmmMappingFaults",
    ]
)


def tests(runner: Runner, build: Path, simulated: bool, python: Python) -> list[Step]:
    """Every test that can use the driver under test."""
    done = [
        against_the_toolkit(runner, build),
        runner.gtest("conformance, descriptors", build / "tests/conformance/conformance_memory_test", 120, only="*CudaVmm"),
        conformance_of_legacy_handles(runner, build, simulated),
        runner.gtest("client's mappers", build / "tests/unit/client/client_cuda_test", 90, only="*" if simulated else MAPPERS_ON_A_CARD),
        runner.gtest("integration, GPU memory", build / "tests/integration/cuda_processes_test", 180),
        fences(runner, build, simulated),
        runner.gtest("integration, host memory", build / "tests/integration/two_processes_test", 60),
        runner.gtest("integration, all kinds of memory", build / "tests/integration/all_kinds_test", 90),
    ]
    if machine.has("grpc") and machine.has("pytest"):
        chosen = [] if simulated else ["-k", "two_processes or killed_writer"]
        done.append(runner.pytest("foreign client, cudaIpcMemHandle", [sys.executable, str(ROOT / "tests/foreign/test_cuda_ipc.py"), *chosen], 90))
    else:
        done.append(Step("foreign client, cudaIpcMemHandle", "not run: grpcio or pytest is missing"))
    name = f"real frameworks{', SIMULATED' if simulated else ''}"
    if python.missing:
        done.append(Step(name, f"not run: {python.missing}"))
    else:
        # The tests find the installed frameworks, and skip the others.
        done.append(runner.pytest(name, [python.program, str(HERE / "frameworks")], 150, python.environment))
    return done


def conformance_of_legacy_handles(runner: Runner, build: Path, simulated: bool) -> Step:
    name = "conformance, cudaIpcMemHandle"
    if not simulated:
        return Step(name, "not run: a card lets no process open its own handle; the integration tests open it in another one")
    return runner.gtest(name, build / "tests/conformance/conformance_memory_test", 120, only="*CudaIpc")


def fences(runner: Runner, build: Path, simulated: bool) -> Step:
    name = "integration, fences"
    if not simulated:
        return Step(name, "not run: a card decides by itself when work happens; E11 and the frameworks look at order there")
    return runner.gtest(name, build / "tests/integration/cuda_fence_test", 120)


def against_the_toolkit(runner: Runner, build: Path) -> Step:
    """Compares our declarations of the driver's interface with the toolkit's."""
    name, headers = "declarations against <cuda.h>", machine.toolkit()
    if headers is None:
        return Step(name, "not run: no toolkit is here")
    sources = [ROOT / f"tests/unit/boundary/{each}.cc" for each in ("driver_abi_test", "driver_abi_newer_test")]
    return runner.compiles(name, sources, [ROOT, build / "include", headers], 60)


def everything(runner: Runner, build: Path, library: str, simulated: bool, scratch: Path, begun: float) -> dict[str, Any]:
    python = pythons.simulated(runner, scratch) if simulated else pythons.of_this_machine()
    steps = tests(runner, build, simulated, python)
    for step in steps:
        counts = f"{step.passed} passed, {step.failed} failed, {len(step.skipped)} skipped"
        print(f"   {step.name:40s} {step.outcome:8s} {counts if step.seconds else ''}", flush=True)
        if step.said:
            print(step.said, flush=True)
    try:
        rows, notes = benches.run(runner, build, library, simulated, python)
    except (OSError, RuntimeError) as error:
        rows, notes = [], [f"no benchmark ran: {error}"]  # the experiments may show the cause
    print(f"   {len(rows)} figures", *notes, sep="\n   ", flush=True)
    found = experiments.run(runner, build / "tests/gpu/gpu_experiments", library, simulated)
    for each in found:
        print(f"   {each['experiment']:4s} {each['title']:50s} {each['outcome']}", flush=True)
    return {
        "simulated": simulated,
        "steps": [dataclasses.asdict(step) for step in steps],
        "bench": rows,
        "bench_notes": notes,
        "experiments": found,
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="the build folder, or what stands for it in a bundle")
    parser.add_argument("--simulated", action="store_true", help="libcuda.so.1 is the simulated driver")
    parser.add_argument("--out", type=Path, help="where results are written; with a card tests/gpu/results unless given")
    parser.add_argument("--seconds", type=float, default=WHOLE_RUN_S, help="how long all of it may take")
    wish = parser.parse_args()
    begun = time.monotonic()
    try:
        library = machine.driver_path()
        facts = machine.facts(library, wish.simulated)
    except OSError as absent:
        print(f"no card can be used here: {absent}", file=sys.stderr)
        return 69
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
    with tempfile.TemporaryDirectory(prefix="ab-gpu-") as scratch:
        environment = dict(os.environ)
        environment |= {
            "ARRAYBRIDGE_BUILD": str(wish.build.resolve()),
            "ARRAYBRIDGE_CUDA_DRIVER": library,
            "ARRAYBRIDGE_DAEMON": str(wish.build.resolve() / "daemon/arraybridged"),
            "TMPDIR": scratch,
        }
        if wish.simulated:
            # As lenient as hardware, with room for the sizes of a small run. Tests choose their own settings.
            environment["SIMULATED_CUDA"] = "guest;memory=1073741824"
        runner = Runner(environment, begun + wish.seconds)
        result = {"machine": facts, **everything(runner, wish.build, library, wish.simulated, Path(scratch), begun)}
    print("\n" + report.page(result))
    folder = wish.out or (None if wish.simulated else HERE / "results")
    if folder is not None:
        print(*report.write(result, folder), sep="\n")
    failed = [step["name"] for step in result["steps"] if step["outcome"] == "failed"]
    failed += [each["experiment"] for each in result["experiments"] if each["outcome"].startswith("ended")]
    if not result["bench"]:
        failed.append("benchmarks")
    print(f"failed: {', '.join(failed)}" if failed else "nothing failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
