# SPDX-License-Identifier: Apache-2.0
"""Real CuPy with arrays in a broker's GPU memory, between processes. Its kernels are interpreted."""

import pytest
from machines import Do, Machines
from test_arraybridge import VIA


@pytest.fixture(scope="module")
def pair(machines: Machines) -> tuple[Do, Do]:
    """Two processes with CuPy, on a machine that writes bytes only if a process waits for them."""
    machine = machines("cuda_vmm")
    return machine.writer, machine.reader


def test_kernels_compute_what_numpy_does(pair: tuple[Do, Do]) -> None:
    assert pair[0]("compute") == "right"


def test_arrays_cross_without_a_copy(pair: tuple[Do, Do]) -> None:
    writer, reader = pair
    assert writer("cupy_put crossing 5") == "(2, 0) cuda_vmm"
    assert reader("cupy_get crossing 5") == f"{VIA['cuda_vmm']} 0 right"
    assert reader("get crossing 5") == f"cuda:0 {VIA['cuda_vmm']} 0 right", "in PyTorch"
    assert reader("get_numpy crossing 5") == "d2h 1 right"
    assert reader("numba crossing 5") == "right (2, 0)"
    assert writer("put tensor 6") == "(2, 0) cuda_vmm"
    assert reader("cupy_get tensor 6") == f"{VIA['cuda_vmm']} 0 right"


@pytest.mark.parametrize("verb", ["put", "unwaited", "send", "asend"])
@pytest.mark.parametrize("stream", ["default", "side", "thread"])
def test_readers_come_after_a_pending_kernel(pair: tuple[Do, Do], stream: str, verb: str) -> None:
    writer, reader = pair
    name = f"{stream}-{verb}"
    assert writer(f"cupy_put_pending {name} 7 {stream} {verb}") == "ok"
    if "send" in verb:
        assert reader(f"cupy_received {name} 7") == "right"
    else:
        assert reader(f"cupy_get {name} 7").endswith("right")


def test_layouts_and_types(pair: tuple[Do, Do]) -> None:
    writer, reader = pair
    assert writer("cupy_layouts made") == "right"
    assert reader("cupy_types made") == "right"


def test_conversions_share_memory(pair: tuple[Do, Do]) -> None:
    assert pair[0]("cupy_convert 8") == "right right d2d-copy"


def test_a_copy_is_ones_own(pair: tuple[Do, Do]) -> None:
    writer, reader = pair
    writer("cupy_put kept 9")
    assert reader("cupy_own kept 9") == "right right"
