# SPDX-License-Identifier: Apache-2.0
"""Arrays of JAX and TensorFlow on a machine with two simulated GPUs, between processes, with those of all other packages."""

import itertools
import subprocess
import sys

import pytest
from machines import HERE, Machine, Machines, seeing
from test_arraybridge import VIA, kind

__all__ = ["kind"]  # a fixture

PACKAGES = ["torch", "cupy", "numba", "cuda.core", "jax", "tensorflow"]
XLA = ["jax", "tensorflow"]
PAIRS = [(source, target) for source, target in itertools.product(PACKAGES, PACKAGES) if source in XLA or target in XLA]


@pytest.fixture(scope="module")
def machine(xla_machines: Machines) -> Machine:
    return xla_machines("cuda_vmm")


@pytest.mark.parametrize("gpu", [0, 1])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_put_by_one_and_got_by_another(xla_machines: Machines, kind: str, source: str, target: str, gpu: int) -> None:
    machine = xla_machines(kind)
    name = f"cell-{source}-{target}-{gpu}"
    assert machine.writer(f"cell_put {source} {name} 40 {gpu}") == f"(2, {gpu}) {kind}"
    via = "view" if target == "cuda.core" else VIA[kind]
    assert machine.reader(f"cell_get {target} {name} 40") == f"cuda:{gpu} shared {via} right"
    assert machine.writer(f"cell_get {target} {name} 40") == f"cuda:{gpu} shared {via} right", "in the process that put it"


@pytest.mark.parametrize("gpu", [0, 1])
@pytest.mark.parametrize("source", XLA)
def test_readers_come_after_a_pending_kernel(xla_machines: Machines, kind: str, source: str, gpu: int) -> None:
    machine = xla_machines(kind)
    name = f"pending-{source}-{gpu}"
    assert machine.writer(f"cell_put_pending {source} {name} 41 {gpu}") == f"(2, {gpu}) {kind}"
    for target in (source, "torch"):
        assert machine.reader(f"cell_get {target} {name} 41") == f"cuda:{gpu} shared {VIA[kind]} right"


@pytest.mark.parametrize("target", XLA)
def test_on_another_gpu_it_is_a_copy_or_refused(xla_machines: Machines, kind: str, target: str) -> None:
    machine = xla_machines(kind)
    name = f"across-{target}"
    machine.writer(f"cell_put {target} {name} 42 1")
    assert machine.reader(f"cell_get_on {target} {name} 42 cuda:0") == "cuda:0 d2h+h2d right"
    refused = machine.reader(f"cell_shared_on {target} {name} cuda:0")
    assert refused.startswith("ZeroCopyUnavailable")
    assert "from cuda:1 to cuda:0" in refused
    assert machine.reader(f"cell_shared_on {target} {name} cuda:1") == VIA[kind]
    assert machine.reader(f"cell_get_on {target} {name} 42 cuda:2").startswith("DeviceUnavailable")


def test_a_process_that_sees_the_second_gpu_alone(machine: Machine) -> None:
    """It is told which arrays it cannot have, and counts its own GPU as the first."""
    for source in XLA:
        machine.writer(f"cell_put {source} hidden-{source} 43 0")
        machine.writer(f"cell_put {source} seen-{source} 44 1")
    with seeing(machine, ";visible=1") as reader:
        for source, target in itertools.product(XLA, XLA):
            refused = reader(f"cell_get {target} hidden-{source} 43")
            assert refused.startswith("DeviceUnavailable")
            assert "does not see; it sees GPU-" in refused
            assert reader(f"cell_get {target} seen-{source} 44") == f"cuda:0 shared {VIA['cuda_vmm']} right"
        assert reader("cell_put jax seen-back 45") == "(2, 0) cuda_vmm"
    assert machine.reader("cell_get tensorflow seen-back 45") == f"cuda:1 shared {VIA['cuda_vmm']} right"


@pytest.mark.parametrize(
    "name",
    [
        "numba_by_asdlpack_to_jax", "cupy_to_tensorflow", "from_gpu_to_gpu_to_numpy cupy torch jax tensorflow",
        "in_order_to_another_gpu default cupy torch jax tensorflow", "in_order_to_another_gpu side cupy torch jax tensorflow",
    ],
)  # fmt: skip
def test_a_recipe(machine: Machine, name: str) -> None:
    assert machine.writer(f"recipe_{name}") == "right"


def test_a_plan_says_what_the_driver_is_asked_for(machine: Machine) -> None:
    assert machine.writer("vias_of_what_xla_cannot_take") == "right"


@pytest.mark.parametrize("name", ["by_pinned_chunks jax tensorflow", "of_a_tree jax tensorflow"])
def test_uploads(machine: Machine, name: str) -> None:
    assert machine.writer(f"uploads_{name}") == "right"


def test_a_bundle(machine: Machine) -> None:
    assert machine.writer("bundle_of_xla_arrays") == "right"


@pytest.mark.parametrize("seen", ["1", "1,0", ""])
def test_a_process_is_told_by_a_setting_which_gpus_to_see(machine: Machine, seen: str) -> None:
    program = [sys.executable, HERE / "seen_gpus_program.py", machine.address, seen]
    done = subprocess.run(program, env=machine.environment, capture_output=True, text=True, check=False)
    assert done.stdout == "right\n", done.stderr[-4000:]
