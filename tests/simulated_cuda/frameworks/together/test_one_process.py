# SPDX-License-Identifier: Apache-2.0
"""Recipes of the guides, plans, uploads and bundles with real packages on a machine with two simulated GPUs."""

import pytest
from machines import Machine, Machines, seeing


@pytest.fixture(scope="module")
def machine(machines: Machines) -> Machine:
    return machines("cuda_vmm", ";devices=2")


@pytest.mark.parametrize(
    "name",
    [
        "safe_convert", "cupy_and_torch_are_one_memory", "from_gpu_to_gpu_to_numpy cupy torch",
        "in_order_to_another_gpu default cupy torch",
        "in_order_to_another_gpu side cupy torch", "numba_by_asdlpack", "pinned", "change_a_copy", "bundle", "capture",
    ],
)  # fmt: skip
def test_a_recipe(machine: Machine, name: str) -> None:
    assert machine.reader(f"recipe_{name}") == "right"


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_a_plan_says_what_the_driver_is_asked_for(machine: Machine, framework: str) -> None:
    assert machine.writer(f"vias_on_one_gpu {framework}") == "right"


def test_a_plan_says_how_a_strided_view_is_copied(machine: Machine) -> None:
    assert machine.writer("vias_of_a_strided_view") == "right"


def test_a_plan_says_how_arrays_get_to_another_gpu(machine: Machine) -> None:
    assert machine.writer("vias_between_gpus d2h+h2d") == "right"


@pytest.mark.parametrize("name", ["by_pinned_chunks torch cupy", "of_a_tree torch cupy", "of_several_arrays", "put_a_strided_tree strided"])
def test_uploads(machine: Machine, name: str) -> None:
    assert machine.writer(f"uploads_{name}") == "right"


@pytest.mark.parametrize(
    "name",
    [
        "of_host_arrays", "of_arrays_on_gpus", "written_in_place", "after_queued_work", "of_many_small_arrays", "of_files",
        "of_a_module",
    ],
)  # fmt: skip
def test_a_bundle(machine: Machine, name: str) -> None:
    assert machine.writer(f"bundle_{name}") == "right"


def test_a_bundle_by_legacy_handles(machines: Machines) -> None:
    machine = machines("cuda_ipc")
    uuid = machine.writer("bundle_put legacy 0")
    assert machine.reader(f"bundle_read legacy {uuid}") == "right on 0"


def test_a_driver_that_refuses_uploads(machine: Machine) -> None:
    with seeing(machine, ";fail=cuMemcpyHtoDAsync:*:1") as process:
        assert process("uploads_refused") == "right"
