# SPDX-License-Identifier: Apache-2.0
"""The planner's decisions, without any framework, broker or extension."""

import subprocess
import sys
from dataclasses import replace

import pytest

from arraybridge import planner
from arraybridge.errors import (
    DeviceUnavailable,
    InvalidDevice,
    UnsupportedArray,
    UnsupportedDtype,
    ZeroCopyUnavailable,
)
from arraybridge.planner import COMMON, Caps, Description, layout_of

NUMPY = Caps("numpy", "strided", 1, 64, "kept", False, COMMON, opaque=True)
TORCH = Caps("torch", "nonnegative", 0, 64, "dropped", True, COMMON)
TENSORFLOW = Caps("tensorflow", "compact_c", 64, 64, "immutable", False, COMMON, by_value=frozenset({"float8_e5m2"}))
JAX = Caps("jax", "compact_permutation", 64, 64, "immutable", False, COMMON)
JAX_32 = replace(JAX, narrows={"float64": "float32"}, way_out="set jax_enable_x64")

ARRAY = Description("numpy", "float32", (2, 32, 1), (2, 3), (3, 1), 4096, False)
READ_ONLY = replace(ARRAY, read_only=True)
SHARE = replace(READ_ONLY, framework="share", strides=None)


def codes(plan):
    return [reason.partition(":")[0] for reason in plan.reasons]


def test_same_framework_is_the_same_object():
    chosen = planner.plan(ARRAY, NUMPY)
    assert (chosen.route, chosen.copies, chosen.zero_copy, chosen.reasons) == ("identity", 0, True, ())


@pytest.mark.parametrize("target", [NUMPY, TORCH, TENSORFLOW, JAX], ids=lambda caps: caps.name)
def test_a_share_reaches_everybody_without_a_copy(target):
    source = replace(SHARE, read_only=not target.private)
    chosen = planner.plan(source, target)
    assert (chosen.route, chosen.via, chosen.copied_bytes) == ("hand_over", "host-shm", 0)
    assert bool(chosen.notes) == target.private


@pytest.mark.parametrize("target", [TENSORFLOW, JAX], ids=lambda caps: caps.name)
def test_writable_memory_under_an_immutable_array_is_copied_unless_asked_for(target):
    chosen = planner.plan(ARRAY, target)
    assert (chosen.route, codes(chosen), chosen.copied_bytes) == ("place", ["immutable_target"], 24)
    alias = planner.plan(ARRAY, target, copy=False)
    assert alias.zero_copy and alias.notes[0].startswith("immutable_alias_of_writable")
    assert planner.plan(READ_ONLY, target).zero_copy


def test_read_only_memory_reaches_torch_by_a_copy_alone():
    assert codes(planner.plan(READ_ONLY, TORCH)) == ["read_only"]
    with pytest.raises(ZeroCopyUnavailable, match="does not support read-only"):
        planner.plan(READ_ONLY, TORCH, copy=False)


@pytest.mark.parametrize("target", [TENSORFLOW, JAX], ids=lambda caps: caps.name)
def test_read_only_memory_that_may_change_is_copied_for_who_takes_it_for_constant(target):
    changing = replace(READ_ONLY, may_change="it is a view")
    chosen = planner.plan(changing, target)
    assert chosen.reasons == (
        f"immutable_target: the source is read-only, but it is a view: a later write would change a value of {target.name}",
    )
    alias = planner.plan(changing, target, copy=False)
    assert alias.zero_copy and alias.notes[0].startswith("immutable_alias_of_writable")
    assert planner.plan(changing, NUMPY).zero_copy or planner.plan(changing, NUMPY).route == "identity"


@pytest.mark.parametrize(
    ("strides", "takers"),
    [
        ((3, 1), {"numpy", "torch", "jax", "tensorflow"}),
        ((1, 2), {"numpy", "torch", "jax"}),
        ((6, 2), {"numpy", "torch"}),
        ((0, 0), {"numpy", "torch"}),
        ((3, -1), {"numpy"}),
    ],
)
def test_layouts(strides, takers):
    source = replace(READ_ONLY, framework="view", strides=strides)
    for target in (NUMPY, replace(TORCH, read_only="kept"), TENSORFLOW, JAX):
        assert planner.plan(source, target).zero_copy == (target.name in takers), target.name
        if target.name not in takers:
            assert codes(planner.plan(source, target)) == ["layout"]


@pytest.mark.parametrize(
    ("shape", "strides"), [((2, 3), (0, 1)), ((2, 3), (1, 0)), ((2, 3), (0, 0)), ((1, 3), (0, 1)), ((0, 3), (0, 1)), ((), ())]
)
def test_writable_memory_of_many_elements_in_one_place_is_copied_for_who_writes(shape, strides):
    source = replace(ARRAY, framework="view", shape=shape, strides=strides)
    repeated = any(size > 1 and not stride for size, stride in zip(shape, strides, strict=True)) and 0 not in shape
    for target in (NUMPY, TORCH):
        chosen = planner.plan(source, target)
        assert codes(chosen) == ["layout"] * repeated and ("have one address" in str(chosen)) == repeated
        if repeated:
            with pytest.raises(ZeroCopyUnavailable, match="have one address"):
                planner.plan(source, target, copy=False)
    assert planner.plan(replace(source, read_only=True), NUMPY).zero_copy
    assert codes(planner.plan(replace(source, read_only=True), TORCH)) == ["read_only"], "and the copy has no repetitions"
    assert planner.plan(replace(source, framework="torch"), TORCH).route == "identity"


def test_dimensions_of_size_one_and_empty_arrays_have_every_layout():
    assert layout_of((1, 3), (77, 1)) == "compact_c"
    assert layout_of((3, 0), (5, 9)) == "compact_c"
    assert layout_of((), ()) == "compact_c"


def test_alignment_counts_where_there_are_bytes():
    crooked = replace(READ_ONLY, framework="view", address=4096 + 4)
    assert codes(planner.plan(crooked, JAX)) == ["alignment"]
    assert planner.plan(crooked, NUMPY).zero_copy
    assert planner.plan(replace(crooked, shape=(0, 3)), JAX).zero_copy
    assert codes(planner.plan(replace(crooked, address=4097, read_only=False), TORCH)) == ["alignment"]


def test_a_silent_narrowing_is_refused_and_names_both_ways_out():
    wide = replace(SHARE, dtype="float64", code=(2, 64, 1))
    with pytest.raises(UnsupportedDtype, match=r"jax_enable_x64.*allow_downcast=True"):
        planner.plan(wide, JAX_32)
    chosen = planner.plan(wide, JAX_32, allow_downcast=True)
    assert (chosen.dtype, chosen.copies, chosen.copied_bytes, codes(chosen)) == ("float32", 1, 24, ["dtype"])
    assert planner.plan(wide, JAX).zero_copy


def test_dtypes_that_the_target_lacks():
    time = replace(SHARE, dtype="datetime64[ns]", code=(0, 64, 1))
    assert planner.plan(time, NUMPY).zero_copy
    with pytest.raises(UnsupportedDtype, match=r"torch has no dtype for datetime64\[ns\]"):
        planner.plan(time, TORCH)
    tiny = replace(SHARE, dtype="float8_e5m2", code=(12, 8, 1))
    assert codes(planner.plan(tiny, TENSORFLOW)) == ["dtype"]


def test_rank():
    with pytest.raises(UnsupportedArray, match="rank: other has at most 1 dimension, and the array has 2: reshape it first"):
        planner.plan(ARRAY, replace(NUMPY, ndim_max=1, name="other"))


def test_copy_requested_and_copy_forbidden():
    assert codes(planner.plan(ARRAY, NUMPY, copy=True)) == ["copy_requested"]
    crooked = replace(READ_ONLY, framework="view", strides=(3, -1))
    with pytest.raises(ZeroCopyUnavailable, match="layout") as caught:
        planner.plan(crooked, JAX, copy=False)
    assert codes(caught.value.plan) == ["layout"]


def test_obstacles_and_notes_of_the_source_reach_the_plan():
    swapped = replace(ARRAY, obstacles=("byte_order: swapped in the copy",), notes=("detached: no gradient",))
    chosen = planner.plan(swapped, TORCH)
    assert (codes(chosen), chosen.notes) == (["byte_order"], ("detached: no gradient",))
    assert planner.plan(swapped, NUMPY).route == "identity"


@pytest.mark.parametrize("device", [0, 1, "cuda", "cuda:1", "GPU-8e2f"])
def test_devices_that_are_not_here(device):
    with pytest.raises(DeviceUnavailable, match="CUDA"):
        planner.plan(ARRAY, TORCH, device=device)


@pytest.mark.parametrize("device", [-1, "gpu-less", "cuda:x", 1.5, True])
def test_what_is_no_device(device):
    with pytest.raises(InvalidDevice, match="is not a device: use .*arraybridge sees"):
        planner.plan(ARRAY, TORCH, device=device)


def test_a_tree_sums_up():
    plans = [planner.plan(SHARE, NUMPY), planner.plan(SHARE, NUMPY, copy=True)]
    both = planner.combined(plans)
    assert (both.route, both.copies, both.copied_bytes, both.zero_copy) == ("place", 1, 24, False)
    assert codes(both) == ["copy_requested"]


@pytest.mark.parametrize(("given", "name"), [(float, "float64"), ("torch.int8", "int8"), (bool, "bool"), ("bool_", "bool"), (int, "int64")])
def test_dtype_names(given, name):
    assert planner.dtype_name(given) == name


def test_the_planner_loads_no_framework_and_no_extension():
    seen = subprocess.run(
        [sys.executable, "-c", "import sys, arraybridge.planner; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"numpy", "torch", "jax", "tensorflow", "arraybridge._core"} & set(seen)
