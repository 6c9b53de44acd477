# SPDX-License-Identifier: Apache-2.0
"""Real packages on a machine with two simulated GPUs, and in processes that see one of them."""

import itertools

import pytest
from machines import Machine, Machines, seeing
from test_arraybridge import VIA

PACKAGES = ["torch", "cupy", "numba", "cuda.core"]
FRAMEWORKS = ["torch", "cupy", "numba"]


@pytest.fixture(scope="module")
def machine(machines: Machines) -> Machine:
    return machines("cuda_vmm", ";devices=2")


@pytest.mark.parametrize("source", PACKAGES)
def test_on_the_second_gpu(machine: Machine, source: str) -> None:
    name = f"second-{source}"
    assert machine.writer(f"cell_put {source} {name} 50 1") == "(2, 1) cuda_vmm"
    for target in PACKAGES:
        via = "view" if target == "cuda.core" else VIA["cuda_vmm"]
        assert machine.reader(f"cell_get {target} {name} 50") == f"cuda:1 shared {via} right"


@pytest.mark.parametrize("target", FRAMEWORKS)
def test_on_another_gpu_it_is_a_copy_or_refused(machine: Machine, target: str) -> None:
    name = f"across-{target}"
    machine.writer(f"cell_put {target} {name} 51 1")
    assert machine.reader(f"cell_get_on {target} {name} 51 cuda:0") == "cuda:0 d2h+h2d right"
    refused = machine.reader(f"cell_shared_on {target} {name} cuda:0")
    assert refused.startswith("ZeroCopyUnavailable")
    assert "from cuda:1 to cuda:0" in refused
    assert machine.reader(f"cell_shared_on {target} {name} cuda:1") == VIA["cuda_vmm"]
    assert machine.reader(f"cell_get_on {target} {name} 51 cuda:2").startswith("DeviceUnavailable")


def test_gpus_that_reach_each_other_copy_directly(machine: Machine) -> None:
    with seeing(machine, ";peers") as reader:
        for target in FRAMEWORKS:
            machine.writer(f"cell_put {target} peers-{target} 52 1")
            assert reader(f"cell_get_on {target} peers-{target} 52 cuda:0") == "cuda:0 d2d-copy right"
        assert reader("vias_between_gpus d2d-copy") == "right", "as the driver's own count says"


def test_a_process_that_does_not_see_the_gpu_is_told_so(machine: Machine) -> None:
    for source in FRAMEWORKS:
        machine.writer(f"cell_put {source} hidden-{source} 53 1")
        machine.writer(f"cell_put {source} seen-{source} 54 0")
    with seeing(machine, ";visible=0") as reader:
        for target in FRAMEWORKS:
            refused = reader(f"cell_get {target} hidden-{target} 53")
            assert refused.startswith("DeviceUnavailable")
            assert "does not see; it sees GPU-" in refused
            assert reader(f"cell_get_on {target} hidden-{target} 53 cuda:0").startswith("DeviceUnavailable")
            assert reader(f"cell_get {target} seen-{target} 54") == f"cuda:0 shared {VIA['cuda_vmm']} right"


def test_processes_that_count_the_gpus_differently(machine: Machine) -> None:
    uuid = machine.writer("bundle_put turned-bundle 1")
    for source in PACKAGES:
        machine.writer(f"cell_put {source} turned-{source} 55 1")
    with seeing(machine, ";visible=1,0") as reader:
        for source, target in itertools.product(PACKAGES, FRAMEWORKS):
            assert reader(f"cell_get {target} turned-{source} 55") == f"cuda:0 shared {VIA['cuda_vmm']} right"
        for target in FRAMEWORKS:
            assert reader(f"cell_get_on {target} turned-torch 55 {uuid}") == f"cuda:0 {VIA['cuda_vmm']} right"
            assert reader(f"cell_get_on {target} turned-torch 55 cuda:1") == "cuda:1 d2h+h2d right"
        assert reader(f"bundle_read turned-bundle {uuid}") == "right on 0"
        assert reader("cell_put cupy turned-back 56") == "(2, 0) cuda_vmm"
    assert machine.reader("cell_get torch turned-back 56") == f"cuda:1 shared {VIA['cuda_vmm']} right"
