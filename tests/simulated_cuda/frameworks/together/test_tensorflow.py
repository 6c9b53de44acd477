# SPDX-License-Identifier: Apache-2.0
"""Real TensorFlow with arrays in a broker's GPU memory, between processes. Its own kernels are machine code, and fail; XLA's
are interpreted.
"""

import pytest
from machines import Do, Machines
from test_arraybridge import VIA


@pytest.fixture(scope="module")
def pair(xla_machines: Machines) -> tuple[Do, Do]:
    """Two processes with TensorFlow."""
    machine = xla_machines("cuda_vmm")
    return machine.writer, machine.reader


def test_kernels_of_xla_compute_what_numpy_does(pair: tuple[Do, Do]) -> None:
    assert pair[0]("tf_compute") == "right"


def test_arrays_cross_without_a_copy(pair: tuple[Do, Do]) -> None:
    writer, reader = pair
    assert writer("tf_put scene 5") == "(2, 0) cuda_vmm"
    assert reader("tf_get scene 5") == f"{VIA['cuda_vmm']} 0 right"
    assert writer("tf_get scene 5") == f"{VIA['cuda_vmm']} 0 right"
    assert reader("get scene 5") == f"cuda:0 {VIA['cuda_vmm']} 0 right", "in PyTorch"
    assert reader("get_numpy scene 5") == "d2h 1 right"
    assert reader("numba scene 5") == "right (2, 0)"
    assert writer("put tensor 6") == "(2, 0) cuda_vmm"
    assert reader("tf_get tensor 6") == f"{VIA['cuda_vmm']} 0 right"


@pytest.mark.parametrize("verb", ["put", "unwaited", "send", "asend"])
def test_readers_come_after_a_pending_kernel(pair: tuple[Do, Do], verb: str) -> None:
    writer, reader = pair
    assert writer(f"tf_put_pending later-{verb} 7 {verb}") == "ok"
    if "send" in verb:
        assert reader(f"tf_received later-{verb} 7") == "right"
    else:
        assert reader(f"tf_get later-{verb} 7").endswith("right")


def test_a_conversion_comes_after_a_pending_kernel(pair: tuple[Do, Do]) -> None:
    assert pair[0]("tf_convert_pending 10") == "right right"


def test_a_variable_is_put_with_its_value(pair: tuple[Do, Do]) -> None:
    assert pair[0]("tf_variable state 8") == "(2, 0) right"


def test_int32_lies_on_the_host(pair: tuple[Do, Do]) -> None:
    assert pair[0]("tf_integers types") == "(1, 0) (2, 0) (2, 0) (2, 0)"


def test_conversions(pair: tuple[Do, Do]) -> None:
    assert pair[0]("tf_convert 9") == "h2d right GPU:0, d2h right, d2d-copy right"
