# SPDX-License-Identifier: Apache-2.0
"""Bundles, columns of tables, and arrays of a process that lie in shares, which real packages read on a GPU where they lie."""

import pytest
from machines import Machine, Machines, seeing

ONE_MEMORY = ";one_memory=0"
FRAMEWORKS = ["torch", "cupy"]


@pytest.fixture(scope="module")
def machine(machines: Machines) -> Machine:
    return machines("cuda_vmm", ONE_MEMORY)


@pytest.fixture(scope="module")
def with_a_bus(machines: Machines) -> Machine:
    return machines("cuda_vmm")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_bundles_arrays_are_the_gpus_without_a_copy(machine: Machine, framework: str) -> None:
    name = f"net-{framework}"
    assert machine.writer(f"place_put {name}") == "(1, 0)"
    assert machine.reader(f"place_read {framework} {name}") == "zero-copy-host 0 one_memory 1"
    assert machine.reader("place_drop") == "0 registered"
    assert machine.reader(f"place_read {framework} {name} copied") == "h2d 4 0"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_over_a_bus_they_are_mapped_by_wish_alone(with_a_bus: Machine, framework: str) -> None:
    name = f"net-{framework}"
    assert with_a_bus.writer(f"place_put {name}") == "(1, 0)"
    assert with_a_bus.reader(f"place_read {framework} {name}") == "h2d 4 0"
    assert with_a_bus.reader(f"place_read {framework} {name} mapped") == "zero-copy-host 0 mapped 1"
    assert with_a_bus.reader("place_drop") == "0 registered"


def test_a_driver_that_refuses_a_registration(machine: Machine) -> None:
    machine.writer("place_put place-refused")
    with seeing(machine, ";fail=cuMemHostRegister:*:2") as reader:
        assert (
            reader("place_read torch place-refused") == "h2d 3 not_mapped one_memory 0"
        )  # the array without elements needs no registration


def test_the_arrays_keep_a_bundle_that_was_withdrawn(machine: Machine) -> None:
    machine.writer("place_put place-outlived")
    assert machine.reader("place_outlives place-outlived") == "True 0 registered"


def test_wishes_that_cannot_be(machine: Machine) -> None:
    machine.writer("place_put place-wishes")
    assert machine.reader("place_errors place-wishes") == "refused"


def test_a_module_has_the_hosts_weights(machine: Machine) -> None:
    assert machine.reader("place_module place-linear") == "right"


def test_many_arrays_have_one_registration(machine: Machine) -> None:
    assert machine.reader("place_many place-many 3000") == "1 True 0 registered"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_column_of_a_table(machine: Machine, with_a_bus: Machine, framework: str) -> None:
    assert machine.reader(f"place_column {framework} table-{framework}") == "zero-copy-host 0 one_memory"
    assert machine.reader(f"place_column {framework} table-{framework} copied") == "h2d 1"
    assert with_a_bus.reader(f"place_column {framework} table-{framework}") == "h2d 1"
    assert with_a_bus.reader(f"place_column {framework} table-{framework} mapped") == "zero-copy-host 0 mapped"


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("got", "share zero-copy-host 0 one_memory"),
        ("part", "share zero-copy-host 0 one_memory"),
        ("share", "share zero-copy-host 0 one_memory"),
        ("view", "share zero-copy-host 0 one_memory"),
        ("own", "numpy h2d 1"),
        ("private", "torch h2d 1"),
    ],
)
def test_an_array_that_lies_in_a_share_is_converted_in_place(machine: Machine, framework: str, what: str, said: str) -> None:
    assert machine.reader(f"place_convert {framework} convert-{framework}-{what} {what}") == said
    assert machine.reader("place_drop") == "0 registered"


def test_over_a_bus_what_lies_in_a_share_is_copied(with_a_bus: Machine) -> None:
    assert with_a_bus.reader("place_convert torch convert-bus got") == "numpy h2d 1"
