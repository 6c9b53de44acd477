# SPDX-License-Identifier: Apache-2.0
"""scale_dtype: the ends of every range exact, nothing wraps, every framework alike."""

import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st

import arraybridge
from arraybridge import SCALING_FUNCTIONS, InvalidRequest, MemoryConversionError, UnsupportedArray, UnsupportedDtype, scale_dtype
from arraybridge.commands import samples

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
HOST = ("numpy", "torch", "tensorflow", "jax")


def of(framework, values):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    array = np.array(values)
    array = array.astype("f4") if array.dtype == "f8" else array
    return arraybridge.convert_memory(array, "numpy", framework, None)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_the_unit_range_becomes_the_whole_range_with_exact_ends(dtype):
    limits = np.iinfo(dtype)
    for source in ("f2", "f4", "f8"):
        got = scale_dtype(np.array([0, 0.5, 1], source), dtype)
        assert (int(got[0]), int(got[2])) == (limits.min, limits.max) and got.dtype == dtype
        assert abs(int(got[1]) - (limits.min + limits.max) / 2) <= 1


def test_halves_are_cut_off():
    assert scale_dtype(np.array([0, 0.5, 1.0]), "uint8").tolist() == [0, 127, 255]
    assert scale_dtype(np.full((2, 2), 0.5), "uint8").tolist() == [[127, 127], [127, 127]]
    assert scale_dtype(np.array([0.5]), "int8").tolist() == [0]


@pytest.mark.parametrize("framework", HOST)
def test_values_beyond_the_unit_range_are_kept(framework):
    got = scale_dtype(of(framework, [10.0, 15.0, 20.0]), "uint8")
    assert arraybridge.detect_memory_type(got) == framework and np.asarray(got).tolist() == [10, 15, 20]
    assert np.asarray(scale_dtype(of(framework, [0.0, 127.0, 255.0]), "uint8")).tolist() == [0, 127, 255]
    assert np.asarray(scale_dtype(of(framework, [300.0, -1.0]), "uint8")).tolist() == [255, 0]
    assert np.asarray(scale_dtype(of(framework, [0.0, 0.5, 1.0]), "uint8")).tolist() == [0, 127, 255]


def test_the_rules_by_name():
    array = np.array([0.0, 0.5, 1.0, 2.0])
    assert scale_dtype(array, "uint8").tolist() == [0, 0, 1, 2]
    assert scale_dtype(array, "uint8", scaling="unit").tolist() == [0, 127, 255, 255]
    assert scale_dtype(array, "uint8", scaling="full").tolist() == [0, 63, 127, 255]
    assert scale_dtype(np.array([0.0, 1.0]), "uint8", scaling="clip").tolist() == [0, 1]
    assert scale_dtype(np.array([0.5, 1.5, 2.5]), "uint8", scaling="clip").tolist() == [0, 2, 2]
    assert scale_dtype(np.array([-1e308, 1e308]), "int16", scaling="full").tolist() == [-(2**15), 2**15 - 1]
    assert scale_dtype(np.array([5.0, 5.0]), "uint8", scaling="full").tolist() == [0, 0]
    with pytest.raises(InvalidRequest, match="scaling must be one of"):
        scale_dtype(array, "uint8", scaling="stretch")


def test_nan_and_infinities_spoil_one_element_each_and_warn_once():
    for good, kept in (([0.0, 0.5, 1.0], [0, 127, 255]), ([10.0, 15.0], [10, 15])):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = scale_dtype(np.array([*good, np.nan, np.inf, -np.inf]), "uint8")
        assert got.tolist() == [*kept, 0, 255, 0]
        assert [each.category for each in caught] == [RuntimeWarning] and caught[0].filename == __file__
    with pytest.warns(RuntimeWarning):
        assert scale_dtype(np.array([np.nan]), "int8", scaling="full").tolist() == [0]
    with pytest.warns(RuntimeWarning):
        assert scale_dtype(np.array([np.nan]), "int8", scaling="unit").tolist() == [0]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_empty_stays_empty(shape):
    for scaling in ("auto", "clip", "unit", "full"):
        got = scale_dtype(np.zeros(shape), "uint8", scaling=scaling)
        assert got.shape == shape and got.dtype == "uint8"


def test_integers_saturate_and_never_wrap():
    assert scale_dtype(np.array([300], "u2"), "uint8").tolist() == [255]
    assert scale_dtype(np.array([-1, 5], "i8"), "uint64").tolist() == [0, 5]
    assert scale_dtype(np.array([2**64 - 1], "u8"), "int64").tolist() == [2**63 - 1]
    assert scale_dtype(np.array([0, 255], "u1"), "uint16").tolist() == [0, 255]
    zero_d = scale_dtype(np.array(300, "u2"), "uint8")
    assert isinstance(zero_d, np.ndarray) and zero_d == 255


def test_floats_and_bools_are_plain_casts():
    assert scale_dtype(np.array([1, 255], "u1"), "float32").tolist() == [1, 255]
    assert scale_dtype(np.array([0.1], "f8"), "float32")[0] == np.float32(0.1)
    assert scale_dtype(np.array([True, False]), "uint8").tolist() == [1, 0]
    assert scale_dtype(np.array([0.0, 0.5]), bool).tolist() == [False, True]
    assert scale_dtype(np.array([1.5]), "complex64").tolist() == [1.5 + 0j]


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20),
    st.sampled_from(INTEGERS),
    st.sampled_from(["auto", "clip", "unit", "full"]),
)
def test_scaling_never_wraps_and_keeps_order(numbers, dtype, scaling):
    array = np.sort(np.array(numbers))
    got = [int(each) for each in scale_dtype(array, dtype, scaling=scaling)]
    assert got == sorted(got)
    limits = np.iinfo(dtype)
    if scaling == "clip":
        assert got == [min(max(round(each), limits.min), limits.max) for each in array.tolist()]
    if scaling == "full" and array[0] < array[-1]:
        assert got[0] == limits.min and (got[-1] == limits.max or array[-1] / 2 - array[0] / 2 == 0)


@pytest.mark.parametrize("framework", HOST)
def test_dtypes_may_be_said_in_any_words(framework):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tf = pytest.importorskip("tensorflow", reason="tensorflow is not installed")
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    array = of(framework, [0.0, 1.0])
    for dtype in ("uint8", np.uint8, np.dtype("u1"), torch.uint8, tf.uint8, jnp.uint8):
        got = SCALING_FUNCTIONS[framework](array, dtype)
        assert "uint8" in str(got.dtype) and np.asarray(got).tolist() == [0, 255]
    assert "float32" in str(scale_dtype(array, np.single).dtype)
    with pytest.raises(UnsupportedDtype, match="not a numeric dtype"):
        scale_dtype(array, "quaternion")


def test_what_is_no_array_or_has_the_dtype_is_returned_itself():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for other in ([1.0], 3.5, None, "text", np.float32(0.5)):
        assert scale_dtype(other, "uint8") is other
    assert set(SCALING_FUNCTIONS) == arraybridge.VALID_MEMORY_TYPES
    array, record, moment = np.zeros(2, "f4"), np.zeros(2, "i4,f4"), np.zeros(2, "M8[s]")
    assert scale_dtype(array, np.float32) is array
    assert scale_dtype(record, record.dtype) is record and scale_dtype(moment, moment.dtype) is moment
    with pytest.raises(MemoryConversionError):
        scale_dtype(moment, "uint8")
    with pytest.raises(MemoryConversionError, match="torch, not numpy"):
        SCALING_FUNCTIONS["numpy"](torch.ones(2), "uint8")


def test_pyclesperanto_scales_ndarrays_into_arrays_of_its_own():
    """It has none on the host."""
    if "pyclesperanto" not in samples.installed(["pyclesperanto"]):
        pytest.skip("pyclesperanto is not installed, or has no device")
    scale = SCALING_FUNCTIONS["pyclesperanto"]
    for dtype in ("int32", np.uint8, np.dtype("f4")):
        values = np.array([[0.0, 0.5], [0.25, 1.0]])
        got = scale(values, dtype)
        assert arraybridge.detect_memory_type(got) == "pyclesperanto" and got.dtype == np.dtype(dtype)
        assert np.array_equal(arraybridge.convert_memory(got, None, "numpy"), scale_dtype(values, dtype))
    same = scale(np.ones((2, 2), "f4"), "float32")
    assert arraybridge.detect_memory_type(same) == "pyclesperanto"
    assert arraybridge.detect_memory_type(scale(got, "uint8")) == "pyclesperanto"
    with pytest.raises(UnsupportedDtype, match="pyclesperanto has no dtype float64"):
        scale(values, "float64")
    with pytest.raises(MemoryConversionError, match="numpy, not torch"):
        SCALING_FUNCTIONS["torch"](values, "uint8")


def test_imaginary_parts_and_missing_dtypes_are_refused():
    jax = pytest.importorskip("jax", reason="jax is not installed")
    for target in ("uint8", "float32"):
        with pytest.raises(UnsupportedDtype, match="imaginary"):
            scale_dtype(np.array([1j]), target)
    assert not jax.config.jax_enable_x64
    with pytest.raises(UnsupportedDtype, match="jax has no dtype float64 in its present configuration"):
        scale_dtype(jax.numpy.ones(2), "float64")


def test_the_source_stays_as_it_is():
    array = np.array([[0.25, 1.0]])
    scale_dtype(array, "uint8")
    scale_dtype(array, "uint8", scaling="full")
    assert array.tolist() == [[0.25, 1.0]] and array.flags.writeable


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_dtypes_of_ml_dtypes_scale_too(name):
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    array = np.array([0, 1]).astype(getattr(ml_dtypes, name))
    assert scale_dtype(array, "uint8").tolist() == [0, 255]
    assert scale_dtype(np.array([0.5], "f4"), name).dtype == array.dtype


def test_masks_are_never_lost_by_scaling():
    masked = np.ma.array([0.0, 1.0, 2.0], mask=[0, 1, 0])
    assert scale_dtype(masked, "float64") is masked
    for dtype in ("uint8", "float32"):
        with pytest.raises(UnsupportedArray, match="mask would be lost"):
            scale_dtype(masked, dtype)


@pytest.mark.parametrize("nothing", [None, "", [], 3.5])
def test_what_names_no_dtype_is_refused(nothing):
    for framework in HOST:
        with pytest.raises(UnsupportedDtype, match="not a numeric dtype"):
            scale_dtype(of(framework, [0.5]), nothing)
