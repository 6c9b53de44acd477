# SPDX-License-Identifier: Apache-2.0
"""Where results lie and how they get there: decided without any driver, framework or broker."""

from dataclasses import replace

import pytest

from arraybridge import planner
from arraybridge.arrays import devices
from arraybridge.errors import DeviceUnavailable, InvalidDevice, ZeroCopyUnavailable
from arraybridge.planner import COMMON, Caps, Description

NUMPY = Caps("numpy", "strided", 1, 64, "kept", False, COMMON, opaque=True)
BOTH = frozenset({devices.CPU, devices.CUDA})
TORCH = Caps("torch", "nonnegative", 0, 64, "dropped", True, COMMON, devices=BOTH)
CUPY = Caps("cupy", "strided", 0, 64, "dropped", False, COMMON, devices=frozenset({devices.CUDA}))
GPUS = ["GPU-aa", "GPU-bb"]

ON_HOST = Description("numpy", "float32", (2, 32, 1), (2, 3), None, 4096, False)
ON_GPU = replace(ON_HOST, framework="torch", device=(devices.CUDA, 1))
SHARE = replace(ON_GPU, framework="share", read_only=True, kind="cuda_vmm")


def way(source, target, **wishes):
    chosen = planner.plan(source, target, gpus=GPUS, **wishes)
    return chosen.route, chosen.via, chosen.device, chosen.copies


@pytest.mark.parametrize(
    ("wish", "meant"),
    [
        (None, None),
        ("cpu", (1, 0)),
        ("cuda", (2, 0)),
        ("cuda:1", (2, 1)),
        (1, (2, 1)),
        ("GPU-bb", (2, 1)),
    ],
)
def test_a_wish_means_a_device(wish, meant):
    assert devices.wished(wish, GPUS, "numpy", "torch") == meant
    if meant is not None:
        assert devices.of(devices.named(meant)) == meant


@pytest.mark.parametrize("wish", ["gpu", "cuda:x", "cuda:-1", "", -1, 1.0, True, b"cpu", ("cuda", 0)])
def test_what_is_no_device_is_refused(wish):
    with pytest.raises(InvalidDevice):
        devices.wished(wish, GPUS, "numpy", "torch")


@pytest.mark.parametrize("wish", ["cuda:2", 2, "GPU-cc", "MIG-cc"])
def test_a_device_that_is_not_here_is_named_beside_those_that_are(wish):
    with pytest.raises(DeviceUnavailable, match=r"\['cpu', 'cuda:0', 'cuda:1'\]"):
        devices.wished(wish, GPUS, "numpy", "torch")


@pytest.mark.parametrize(("kind", "via"), [("cuda_vmm", "zero-copy-vmm"), ("cuda_ipc", "zero-copy-ipc")])
def test_a_share_on_a_gpu_is_handed_over_where_it_is(kind, via):
    assert way(replace(SHARE, kind=kind), TORCH) == ("hand_over", via, "cuda:1", 0)
    assert way(replace(SHARE, kind=kind), CUPY) == ("hand_over", via, "cuda:1", 0)
    chosen = planner.plan(SHARE, TORCH)
    assert chosen.notes[0].startswith("writable_alias_of_immutable: torch ignores")


def test_moves_are_copies_and_named():
    assert way(SHARE, NUMPY) == ("place", "d2h", "cpu", 1)
    assert way(SHARE, TORCH, device="cpu") == ("place", "d2h", "cpu", 1)
    assert way(SHARE, TORCH, device="cuda:0", reaches=lambda *_: True) == ("place", "d2d-copy", "cuda:0", 1)
    assert way(SHARE, TORCH, device="cuda:0", reaches=lambda *_: False) == ("place", "d2h+h2d", "cuda:0", 2)
    assert way(SHARE, TORCH, copy=True) == ("place", "d2d-copy", "cuda:1", 1)
    assert way(ON_HOST, TORCH, device="cuda") == ("place", "h2d", "cuda:0", 1)
    assert way(ON_HOST, CUPY) == ("place", "h2d", "cuda:0", 1)
    assert way(ON_GPU, TORCH, device="cuda:1") == ("identity", "dlpack", "cuda:1", 0)
    assert way(ON_GPU, CUPY) == ("hand_over", "dlpack", "cuda:1", 0)
    with pytest.raises(ZeroCopyUnavailable, match="different_device: from cuda:1 to cpu"):
        way(SHARE, NUMPY, copy=False)


def test_only_a_move_that_was_asked_for_says_so():
    assert planner.plan(SHARE, TORCH, device="cpu").reasons == (f"different_device: from cuda:1 to cpu {planner.ASKED_FOR}",)
    assert planner.plan(SHARE, NUMPY).reasons == ("different_device: from cuda:1 to cpu",)


def test_a_framework_without_arrays_there_is_no_target():
    with pytest.raises(DeviceUnavailable, match="numpy has no arrays on cuda:0"):
        way(ON_HOST, NUMPY, device="cuda")
    with pytest.raises(DeviceUnavailable, match="cupy has no arrays on cpu"):
        way(SHARE, CUPY, device="cpu")


def test_what_a_framework_has_to_fill_takes_two_copies_to_another_device():
    swapped = replace(ON_HOST, obstacles=("byte_order: swapped",), fill=lambda view: None)
    assert way(swapped, TORCH, device="cuda") == ("place", "h2d", "cuda:0", 2)


def test_what_is_spread_over_a_gpu_is_packed_on_the_host():
    turned = replace(SHARE, strides=(1, 2))
    assert way(turned, TORCH, copy=True, reaches=lambda *_: True) == ("place", "d2h+h2d", "cuda:1", 3)
    assert way(turned, NUMPY, reaches=lambda *_: True) == ("place", "d2h", "cpu", 2)
    assert way(replace(ON_HOST, strides=(1, 2)), TORCH, device="cuda") == ("place", "h2d", "cuda:0", 2)
    gaps = replace(SHARE, strides=(30, 10))
    assert planner.plan(gaps, NUMPY).copied_bytes == 24 + (30 + 20 + 1) * 4
    assert planner.plan(gaps, NUMPY).copies == 2
    assert way(turned, TORCH, copy=True) == ("place", "d2d-copy", "cuda:1", 1), "a framework's own copy reads strides"


def test_what_is_narrowed_for_a_gpu_goes_by_the_host():
    narrow = replace(TORCH, narrows={"float64": "float32"})
    wide = replace(ON_GPU, dtype="float64", code=(2, 64, 1), framework="cupy")
    assert way(wide, narrow, allow_downcast=True) == ("place", "d2h+h2d", "cuda:1", 3)
    assert way(wide, narrow, allow_downcast=True, device="cpu") == ("place", "d2h", "cpu", 2)
