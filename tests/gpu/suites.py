# SPDX-License-Identifier: Apache-2.0
"""The tests that can use the driver under test, as steps of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import machine
import plan
from pythons import Python
from steps import Runner, Step

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
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


@dataclass
class Here:
    """What the tests need of this machine."""

    runner: Runner
    build: Path
    simulated: bool
    python: Callable[[], Python]  # that of the frameworks


def frameworks(here: Here, name: str, limit: float) -> Step:
    python = here.python()
    if python.missing:
        return Step(name, f"not run: {python.missing}")
    # The tests find the installed frameworks, and skip the others.
    return here.runner.pytest(name, [python.program, str(HERE / "frameworks")], limit, python.environment)


def hand_off(here: Here, name: str, limit: float) -> Step:
    """PyTorch's put and get between two processes; where it or the extension is missing, C++'s."""
    python = here.python()
    if not python.missing:
        words = [python.program, str(HERE / "frameworks"), "-k", "tensors_cross or current_streams"]
        step = here.runner.pytest(name, words, limit, python.environment)
        if step.passed or step.failed:
            return step
    program = here.build / "tests/integration/cuda_processes_test"
    return here.runner.gtest(name, program, limit, only="*.BytesPutInOne*:*.APutComesAfter*")


def mappers(here: Here, name: str, limit: float) -> Step:
    only = "*" if here.simulated else MAPPERS_ON_A_CARD
    return here.runner.gtest(name, here.build / "tests/unit/client/client_cuda_test", limit, only=only)


def foreign_client(here: Here, name: str, limit: float) -> Step:
    if not machine.has("grpc") or not machine.has("pytest"):
        return Step(name, "not run: grpcio or pytest is missing")
    chosen = [] if here.simulated else ["-k", "two_processes or killed_writer"]
    return here.runner.pytest(name, [sys.executable, str(ROOT / "tests/foreign/test_cuda_ipc.py"), *chosen], limit)


def legacy_conformance(here: Here, name: str, limit: float) -> Step:
    if not here.simulated:
        return Step(name, "not run: a card lets no process open its own handle; the integration tests open it in another one")
    return here.runner.gtest(name, here.build / "tests/conformance/conformance_memory_test", limit, only="*CudaIpc")


def fences(here: Here, name: str, limit: float) -> Step:
    if not here.simulated:
        return Step(name, "not run: a card decides by itself when work happens; E11 and the frameworks look at order there")
    return here.runner.gtest(name, here.build / "tests/integration/cuda_fence_test", limit)


def against_the_toolkit(here: Here, name: str, limit: float) -> Step:
    """Compares our declarations of the driver's interface with the toolkit's."""
    headers = machine.toolkit()
    if headers is None:
        return Step(name, "not run: no toolkit is here")
    sources = [ROOT / f"tests/unit/boundary/{each}.cc" for each in ("driver_abi_test", "driver_abi_newer_test")]
    return here.runner.compiles(name, sources, [ROOT, here.build / "include", headers], limit)


def gtest(path: str, only: str = "*") -> Callable[[Here, str, float], Step]:
    return lambda here, name, limit: here.runner.gtest(name, here.build / path, limit, only=only)


TESTS: dict[str, Callable[[Here, str, float], Step]] = {
    plan.FIRST_HAND_OFF.name: hand_off,
    "integration, GPU memory": gtest("tests/integration/cuda_processes_test"),
    "real frameworks": frameworks,
    "conformance, descriptors": gtest("tests/conformance/conformance_memory_test", "*CudaVmm"),
    "client's mappers": mappers,
    "foreign client, cudaIpcMemHandle": foreign_client,
    "declarations against <cuda.h>": against_the_toolkit,
    "integration, all kinds of memory": gtest("tests/integration/all_kinds_test"),
    "conformance, cudaIpcMemHandle": legacy_conformance,
    "integration, fences": fences,
    "integration, host memory": gtest("tests/integration/two_processes_test"),
}
