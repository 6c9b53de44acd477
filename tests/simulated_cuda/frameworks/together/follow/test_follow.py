# SPDX-License-Identifier: Apache-2.0
"""A module of real PyTorch follows a bundle on a simulated GPU: the same tensors, the memory of the next generation."""

from collections.abc import Iterator

import pytest
from machines import Machine, Machines
from test_arraybridge import Do, client

CASES = [
    "follow_swaps", "swap_waits_for_queued_work", "small_bundles_get_new_tensors", "another_device_gets_new_tensors",
    "memory_comes_back", "a_dropped_follower_lets_go",
]  # fmt: skip


@pytest.fixture(scope="module")
def machine(machines: Machines) -> Machine:
    return machines("cuda_vmm")


@pytest.fixture(scope="module")
def process(machine: Machine) -> Iterator[Do]:
    with client(machine.address, machine.environment, "follow_commands") as do:
        yield do


@pytest.mark.parametrize("case", CASES)
def test_a_module_follows_a_bundle_on_a_gpu(process: Do, case: str) -> None:
    assert process(case) == "right"


def test_memory_with_another_handle_is_refused(machines: Machines) -> None:
    machine = machines("cuda_ipc")
    with client(machine.address, machine.environment, "follow_commands") as do:
        assert do("handles_of_another_kind_are_refused") == "right"
