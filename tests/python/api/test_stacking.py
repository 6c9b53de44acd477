# SPDX-License-Identifier: Apache-2.0
"""stack_slices, unstack_slices, process_slices: every framework, mixed sources, refusals."""

import numpy as np
import pytest

import arraybridge
from arraybridge import (
    InvalidDevice,
    InvalidMemoryType,
    UnsupportedArray,
    UnsupportedDtype,
    process_slices,
    stack_slices,
    unstack_slices,
)
from arraybridge.stack_utils import _is_2d, _is_3d

HOST = ("numpy", "torch", "tensorflow", "jax")


def of(framework, array):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    return arraybridge.convert_memory(np.asarray(array), "numpy", framework, None)


def planes(count=3, dtype="float32"):
    return np.arange(count * 6).reshape(count, 2, 3).astype(dtype)


@pytest.mark.parametrize("target", HOST)
@pytest.mark.parametrize("source", HOST)
def test_every_framework_stacks_the_slices_of_every_framework(source, target):
    slices = [of(source, plane) for plane in planes()]
    for stack in (
        stack_slices(slices, target, None),
        stack_slices(slices, memory_type=arraybridge.MemoryType(target), gpu_id=None),
        stack_slices(slices, target_type=target, gpu_id=None),
    ):
        assert arraybridge.detect_memory_type(stack) == target and tuple(stack.shape) == (3, 2, 3)
        np.testing.assert_array_equal(np.asarray(stack), planes())


def test_numpy_is_the_default_and_the_stack_is_a_copy():
    slices = list(planes())
    stack = stack_slices(slices)
    assert isinstance(stack, np.ndarray)
    slices[0][...] = -1
    np.testing.assert_array_equal(stack, planes())


def test_slices_of_several_frameworks_become_one_stack():
    mixed = [of(framework, plane) for framework, plane in zip(HOST, planes(4), strict=True)]
    np.testing.assert_array_equal(stack_slices(mixed, "torch", None).numpy(), planes(4))
    reversed_rows = [plane[::-1] for plane in planes()]
    np.testing.assert_array_equal(np.asarray(stack_slices(reversed_rows, "jax", None)), planes()[:, ::-1])


def test_dtypes_are_promoted():
    stack = stack_slices([np.array([[1, 2]], "i4"), np.array([[0.7, 0.2]])])
    assert stack.dtype == "float64" and stack[1, 0, 0] == 0.7
    stack = stack_slices([np.ones((1, 1), "u1"), of("torch", np.ones((1, 1), "i1"))], "torch", None)
    assert "int16" in str(stack.dtype)
    assert stack_slices([np.zeros((1, 2), "M8[s]")] * 2).dtype == "M8[s]"
    with pytest.raises(UnsupportedDtype, match="no common dtype for") as caught:
        stack_slices([np.zeros((1, 2), "M8[s]"), np.zeros((1, 2))])
    assert isinstance(caught.value, TypeError)


def test_bfloat16_keeps_its_bits():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    plane = torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16)
    assert torch.equal(stack_slices([plane, plane], "torch", None), torch.stack([plane, plane]))


def test_what_cannot_be_stacked_is_named():
    with pytest.raises(ValueError, match="Cannot stack empty list"):
        stack_slices([])
    with pytest.raises(ValueError, match=r"slice 1 has shape \(1, 3\), slice 0 has \(2, 3\)"):
        stack_slices([np.zeros((2, 3)), np.zeros((1, 3))])
    for bad in (np.zeros(3), np.zeros((1, 2, 3)), [[1, 2]], 5):
        with pytest.raises(ValueError, match="slice 1 is not a 2D array"):
            stack_slices([np.zeros((2, 3)), bad])
    with pytest.raises(TypeError, match="memory_type=numpy and target_type=torch"):
        stack_slices([np.zeros((2, 3))], "numpy", target_type="torch")
    assert stack_slices([np.zeros((2, 3))], "numpy", target_type="numpy").shape == (1, 2, 3)
    with pytest.raises(InvalidMemoryType):
        stack_slices([np.zeros((2, 3))], "invalid")
    with pytest.raises(InvalidDevice):
        stack_slices([np.zeros((2, 3))], "torch", -1)


@pytest.mark.parametrize("target", HOST)
def test_unstacking_gives_back_what_was_stacked(target):
    for slices in (
        unstack_slices(planes(), target, None),
        unstack_slices(of(target, planes()), target, None, True),
        unstack_slices(planes(), target, None, validate_slices=False, copy=True),
    ):
        assert len(slices) == 3
        for each, plane in zip(slices, planes(), strict=True):
            assert arraybridge.detect_memory_type(each) == target
            np.testing.assert_array_equal(np.asarray(each), plane)


def test_slices_are_views_and_with_copy_arrays_of_their_own():
    array = planes()
    first = unstack_slices(array)[0]
    first[...] = 9
    assert array[0, 0, 0] == 9
    tensor = of("torch", planes())
    unstack_slices(tensor, "torch", None)[1].fill_(8)
    assert tensor[1, 0, 0] == 8
    own = unstack_slices(array, copy=True)
    own[1][...] = 7
    assert array[1, 0, 0] == 6 and own[0][0, 0] == 9
    assert all(each.base is not array for each in own)


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((2, 3)), [[[1]]], None])
def test_what_is_not_3d_is_refused(bad):
    with pytest.raises(ValueError, match="Array must be 3D"):
        unstack_slices(bad)
    if not isinstance(bad, np.ndarray):
        return
    with pytest.raises(ValueError, match="Array must be 3D"):
        process_slices(bad, lambda plane: plane)


def test_is_2d_and_is_3d():
    assert _is_2d(np.zeros((1, 2))) and not _is_2d(np.zeros(1)) and not _is_2d(5)
    assert _is_3d(of("torch", planes())) and not _is_3d(np.zeros(1))


@pytest.mark.parametrize("framework", HOST)
def test_a_function_is_called_for_every_slice(framework):
    image = of(framework, planes())
    seen = []

    def scaled(plane, factor, *, plus=0):
        seen.append(arraybridge.detect_memory_type(plane))
        return plane * factor + plus

    got = process_slices(image, scaled, (2,), {"plus": 1})
    assert arraybridge.detect_memory_type(got) == framework and seen == [framework] * 3
    np.testing.assert_array_equal(np.asarray(got), planes() * 2 + 1)


def test_tuples_become_a_stack_and_lists():
    stack, sums, names = process_slices(planes(), lambda plane: (plane + 1, float(plane.sum()), "x"))
    np.testing.assert_array_equal(stack, planes() + 1)
    assert sums == [float(plane.sum()) for plane in planes()] and names == ["x"] * 3
    (alone,) = process_slices(planes(), lambda plane: (plane,))
    np.testing.assert_array_equal(alone, planes())
    counts = iter([1, 2, 2])
    with pytest.raises(ValueError, match="different numbers of results"):
        process_slices(planes(), lambda plane: (plane,) * next(counts))
    mixed = iter([True, False, True])
    with pytest.raises(ValueError, match="different numbers of results"):
        process_slices(planes(), lambda plane: (plane,) if next(mixed) else plane)
    with pytest.raises(ValueError, match="empty tuple"):
        process_slices(planes(), lambda plane: ())


def test_what_the_function_raises_reaches_the_caller():
    def broken(plane):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        process_slices(planes(), broken)
    with pytest.raises(InvalidMemoryType):
        process_slices([1], lambda plane: plane)
    with pytest.raises(ValueError, match="empty list"):
        process_slices(np.zeros((0, 2, 3)), lambda plane: plane)


def test_masks_are_never_lost_in_a_stack():
    masked = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 1], [0, 0]])
    for target in HOST:
        with pytest.raises(UnsupportedArray, match="mask would be lost") as caught:
            stack_slices([planes()[0, :, :2], masked], target, None)
        assert (caught.value.source_type, caught.value.target_type) == ("numpy", target)
    with pytest.raises(UnsupportedArray, match="mask would be lost"):
        process_slices(planes(), lambda plane: np.ma.array(plane))
    whole = np.ma.array(planes(), mask=planes() == 1)
    assert unstack_slices(whole)[0].mask[0, 1], "views keep theirs"
    with pytest.raises(UnsupportedArray, match="mask would be lost"):
        unstack_slices(whole, copy=True)


def test_a_stack_of_a_dtype_that_cannot_travel_is_refused_by_name():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    for dtype, word in (([("a", "u1"), ("b", ml_dtypes.bfloat16)], "'b'"), ("O", "object")):
        with pytest.raises(UnsupportedDtype, match=word) as caught:
            stack_slices([np.zeros((1, 2), dtype)] * 2)
        assert (caught.value.source_type, caught.value.target_type) == ("numpy", "numpy")
