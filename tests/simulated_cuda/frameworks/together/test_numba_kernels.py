# SPDX-License-Identifier: Apache-2.0
"""Arrays that a kernel of real Numba still writes, on each kind of stream, by every verb. Its kernels are interpreted."""

import pytest
from machines import Machines

STREAMS = ["default", "side", "thread", "unnamed"]


@pytest.mark.parametrize("verb", ["put", "unwaited", "send", "asend"])
@pytest.mark.parametrize("stream", STREAMS)
def test_readers_come_after_a_pending_kernel(machines: Machines, stream: str, verb: str) -> None:
    machine = machines("cuda_vmm")
    name = f"numba-{stream}-{verb}"
    assert machine.writer(f"numba_hand_on {name} 30 {stream} {verb}") == "ok"
    assert machine.reader(f"numba_read {name} 30 {stream} {verb}") == "right"
    if "send" not in verb:
        assert machine.reader(f"get {name} 30").endswith("right"), "in PyTorch"
        assert machine.reader(f"cupy_get {name} 30").endswith("right")


@pytest.mark.parametrize("stream", STREAMS)
def test_conversions_come_after_a_pending_kernel(machines: Machines, stream: str) -> None:
    assert machines("cuda_vmm").writer(f"numba_convert 31 {stream}") == "right right right right d2d-copy"


def test_readers_of_a_legacy_handle_come_after_a_pending_kernel(machines: Machines) -> None:
    machine = machines("cuda_ipc")
    assert machine.writer("numba_hand_on numba-ipc 32 side put") == "ok"
    assert machine.reader("numba_read numba-ipc 32 side put") == "right"
