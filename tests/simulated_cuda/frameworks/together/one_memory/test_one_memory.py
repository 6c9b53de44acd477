# SPDX-License-Identifier: Apache-2.0
"""Shares in host memory that real packages read on a GPU where they lie: on a machine with one memory, and on one with a bus."""

import signal
import subprocess
import sys

import pytest
from machines import Lone, Machine, Machines, seeing
from programs import ROOT

ONE_MEMORY = ";one_memory=0"
FRAMEWORKS = ["torch", "cupy", "numba"]


@pytest.fixture(scope="module")
def machine(machines: Machines) -> Machine:
    """Its GPU reads the host's page tables. Its driver writes bytes only if a process waits for them."""
    return machines("cuda_vmm", ONE_MEMORY)


@pytest.fixture(scope="module")
def with_a_bus(machines: Machines) -> Machine:
    return machines("cuda_vmm")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_share_of_the_host_is_an_array_of_the_gpu(machine: Machine, framework: str) -> None:
    name = f"one-{framework}"
    assert machine.writer(f"host_put {name} 3") == "(1, 0) memfd"
    assert machine.reader(f"host_get {framework} {name} 3") == "zero-copy-host 0 one_memory right"
    if framework != "torch":
        assert machine.reader(f"host_kernel {framework} {name} 3") == "right"
    assert machine.reader("host_registrations") == "1"
    assert machine.reader("host_drop") == "0 registered"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_copy_is_made_by_wish_alone(machine: Machine, framework: str) -> None:
    machine.writer(f"host_put copied-{framework} 4")
    assert machine.reader(f"host_get {framework} copied-{framework} 4 copied") == "h2d 1  right"
    assert machine.reader("host_registrations") == "0"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_over_a_bus_it_is_mapped_by_wish_alone(with_a_bus: Machine, framework: str) -> None:
    with_a_bus.writer(f"host_put bus-{framework} 5")
    assert with_a_bus.reader(f"host_get {framework} bus-{framework} 5") == "h2d 1  right"
    assert with_a_bus.reader(f"host_get {framework} bus-{framework} 5 mapped") == "zero-copy-host 0 mapped right"
    assert with_a_bus.reader("host_drop") == "0 registered"


@pytest.mark.parametrize("settings", [";integrated=0", ";one_memory=0;off=100", ";off=99", ";off=19", ";off=113"])
def test_what_the_driver_lacks(with_a_bus: Machine, settings: str) -> None:
    name = "lacks" + settings.replace(";", "-")
    with_a_bus.writer(f"host_put {name} 6")
    with seeing(with_a_bus, settings) as reader:
        by_default = reader(f"host_get torch {name} 6")
        if "integrated" in settings:
            assert by_default == "zero-copy-host 0 one_memory right", "as on a Jetson"
            return
        assert by_default == "h2d 1  right"
        asked = reader(f"host_error torch {name} mapped")
        if "one_memory" in settings:
            assert asked == "no error", "pages that move over the bus are not one memory, and can be mapped"
        else:
            assert asked.startswith("DeviceUnavailable") and "Leave out mapped=True" in asked, asked


def test_a_driver_that_refuses_a_registration(machine: Machine) -> None:
    machine.writer("host_put refused 7")
    with seeing(machine, ";fail=cuMemHostRegister:*:2") as reader:
        assert reader("host_get torch refused 7") == "h2d 1 not_mapped right"
        asked = reader("host_error torch refused mapped")
        assert asked.startswith("DeviceUnavailable") and "cuMemHostRegister" in asked, asked
        assert reader("host_registrations") == "0"


def test_wishes_that_contradict_each_other(machine: Machine) -> None:
    machine.writer("host_put wishes 8")
    for device in ("None", "cpu"):
        asked = machine.reader(f"host_error torch wishes mapped {device}")
        assert asked.startswith("InvalidRequest") and 'device="cuda:0"' in asked, asked
    assert machine.reader("host_error numpy wishes mapped").startswith("DeviceUnavailable")


def test_a_dropped_array_lives_until_its_kernel_has_run(machine: Machine) -> None:
    assert machine.reader("host_drop") == "0 registered"
    assert machine.reader("host_drop_under_a_kernel fenced 9") == "1 right 0 registered"


def test_the_frames_of_a_camera_register_their_arena_once(machine: Machine) -> None:
    assert machine.reader("host_drop") == "0 registered"
    assert machine.reader("host_camera cupy camera 30") == "True 1 registered"
    assert machine.reader("host_idle") == "1 kept, then 0"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_was_mapped_is_put_as_the_share_that_it_is(machine: Machine, framework: str) -> None:
    name = f"relayed-{framework}"
    machine.writer(f"host_put {name} 10")
    assert machine.reader(f"host_get {framework} {name} 10") == "zero-copy-host 0 one_memory right"
    assert machine.reader(f"host_relay {framework} {name} {name}-again") == "(1, 0) 1 forward, 0 copies"
    assert machine.writer(f"host_get {framework} {name}-again 10") == "zero-copy-host 0 one_memory right"
    assert machine.reader("host_drop") == machine.writer("host_drop") == "0 registered"


def test_pinned_memory_of_cupy_is_put_on_the_host_after_its_kernel(machine: Machine) -> None:
    assert machine.writer("host_put_pinned pinned 11") == "(1, 0) memfd"
    assert machine.reader("get_numpy pinned 11") == "host-shm 0 right"


@pytest.mark.parametrize("way", ["put", "send", "bundle"])
@pytest.mark.parametrize("what", ["cupy", "torch", "reversed", "pinned"])
def test_beside_memory_of_the_gpu_all_arrays_are_the_gpus(machine: Machine, what: str, way: str) -> None:
    where = "{'gpu'}" if way == "send" else "(2, 0)"
    assert machine.reader(f"host_mixed {what} {way} mixed-{what}-{way}") == f"{where} True"
    assert machine.reader("host_drop") == "0 registered"


@pytest.mark.parametrize("framework", ["cupy", "numba"])
def test_packages_that_have_gpus_alone_need_no_device(machine: Machine, with_a_bus: Machine, framework: str) -> None:
    name = f"natural-{framework}"
    machine.writer(f"host_put {name} 5")
    in_place = " ".join(["zero-copy-host 0"] * 3)
    assert machine.reader(f"host_natural {framework} {name} 5") == f"right {in_place} zero-copy-vmm 0 right"
    with_a_bus.writer(f"host_put {name} 5")
    assert with_a_bus.reader(f"host_natural {framework} {name} 5") == "right h2d 1 h2d 1 h2d 1 zero-copy-vmm 0 right"
    mapped = "zero-copy-host 0 zero-copy-host 0 h2d 1"
    assert with_a_bus.reader(f"host_natural {framework} {name} 5 mapped") == f"right {mapped} zero-copy-vmm 0 right"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_trees_and_channels(machine: Machine, framework: str) -> None:
    assert machine.reader(f"host_tree {framework} tree-{framework}") == "zero-copy-host 0 right right right right"


def test_an_arena_is_registered_once(machine: Machine) -> None:
    assert machine.reader("host_drop") == "0 registered"
    assert machine.reader("host_many many") == "1 right"
    assert machine.reader("host_drop") == "0 registered"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_write_is_an_error_of_the_driver(machine: Machine, framework: str) -> None:
    name = f"written-{framework}"
    machine.writer(f"host_put {name} 12")
    with Lone(machine) as process:
        answer = process.do(f"write_in_place {framework} {name}")
        assert "illegal" in answer.lower() or "700" in answer, answer
    assert machine.reader(f"get_numpy {name} 12") == "host-shm 0 right", "other readers see what was put"


def test_a_killed_reader_leaves_nothing(machine: Machine) -> None:
    machine.writer("host_put killed 13")
    with Lone(machine) as process:
        assert process.do("hold_in_place torch killed") == "held"
        assert machine.writer("host_leases killed 1") == "1"
        process.process.send_signal(signal.SIGKILL)
        process.process.wait()
    assert machine.writer("host_leases killed 0") == "0"


def test_jax_reads_it_in_place_on_one_memory(xla_machines: Machines) -> None:
    machine = xla_machines("cuda_vmm", ONE_MEMORY)
    machine.writer("host_put xla-one 15")
    for framework in ("jax", "tensorflow"):
        assert machine.reader(f"host_get {framework} xla-one 15") == "zero-copy-host 0 one_memory right", framework
    assert machine.reader("host_get jax xla-one 15") == "zero-copy-host 0 one_memory right"
    assert machine.reader("host_kernel jax xla-one 15") == "right"
    assert machine.reader("host_drop") == "0 registered"


def test_jax_reads_it_too(xla_machines: Machines) -> None:
    machine = xla_machines("cuda_vmm")
    machine.writer("host_put xla 14")
    for framework in ("jax", "tensorflow"):
        assert machine.reader(f"host_get {framework} xla 14 mapped") == "zero-copy-host 0 mapped right", framework
    assert machine.reader("host_get jax xla 14 mapped") == "zero-copy-host 0 mapped right"
    assert machine.reader("host_kernel jax xla 14") == "right"
    assert machine.reader("host_drop") == "0 registered"


def test_the_recipe(machine: Machine) -> None:
    assert machine.reader("host_recipe") == "('zero-copy-host', 0) cuda:0 307200"


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        ("machine", [], ["zero-copy-host, copies: 0", "the host"]),
        ("with_a_bus", [], ["h2d, copies: 1", "the GPU"]),
        ("with_a_bus", ["--mapped"], ["zero-copy-host, copies: 0", "the host"]),
    ],
)
def test_the_example(request: pytest.FixtureRequest, kind: str, words: list[str], said: list[str]) -> None:
    machine: Machine = request.getfixturevalue(kind)
    example = ROOT / "docs/examples/one-memory/one_memory.py"
    start = (
        "import runpy, sys, real_packages; real_packages.package('cupy'); del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", start, example, *words], env=machine.environment | {"ARRAYBRIDGE_ADDRESS": machine.address},
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [said[0], "the GPU made 1 to 100000 of it", f"put again, it lies on {said[1]}"]
