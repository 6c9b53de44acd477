# SPDX-License-Identifier: Apache-2.0
"""Writes of real packages into arrays that they got, and into copies of their own. docs/guides/recipes.md says the same."""

import pytest
from machines import Lone, Machines
from test_arraybridge import VIA, kind

__all__ = ["kind"]  # a fixture

FRAMEWORKS = ["torch", "cupy", "numba"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_copy_is_ones_own(machines: Machines, kind: str, framework: str) -> None:
    machine = machines(kind)
    machine.writer(f"cell_put {framework} own-{framework} 60")
    assert machine.reader(f"cell_own {framework} own-{framework} 60") == "d2d-copy right right"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_write_into_a_descriptors_memory_costs_its_process_the_gpu(machines: Machines, framework: str) -> None:
    machine = machines("cuda_vmm")
    name = f"written-{framework}"
    machine.writer(f"cell_put {framework} {name} 61")
    with Lone(machine) as process:
        assert process.do(f"read {framework} {name} 61") == "right"
        assert "ILLEGAL_ADDRESS" in process.do(f"write {framework} {name}")
        assert "ILLEGAL_ADDRESS" in process.do(f"read {framework} {name} 61"), "this process can use the GPU no more"
        assert process.end() == 0
    assert machine.reader(f"cell_get {framework} {name} 61") == f"cuda:0 shared {VIA['cuda_vmm']} right"
    assert machine.writer(f"cell_get {framework} {name} 61") == f"cuda:0 shared {VIA['cuda_vmm']} right"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_write_into_a_legacy_handles_memory_changes_the_array_for_all(machines: Machines, framework: str) -> None:
    machine = machines("cuda_ipc")
    name = f"changed-{framework}"
    machine.writer(f"cell_put {framework} {name} 62")
    assert machine.reader(f"cell_write {framework} {name}") == "written"
    assert machine.writer(f"cell_get {framework} {name} 63") == f"cuda:0 shared {VIA['cuda_ipc']} right"
