# SPDX-License-Identifier: Apache-2.0
"""Structured dtypes travel whole, or are refused by the name of the field that cannot."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from arraybridge import UnsupportedDtype, convert_memory

UNSAYABLE = {
    "bfloat16": ([("id", "u4"), ("a", ml_dtypes.bfloat16)], "field 'a' is of bfloat16"),
    "float8": ([("a", ml_dtypes.float8_e5m2, (2,))], "field 'a' is of float8_e5m2"),
    "nested": ([("outer", [("x", "f4"), ("y", ml_dtypes.float8_e4m3fn)])], "field 'outer.y' is of float8_e4m3fn"),
    "int4": ([("a", ml_dtypes.int4)], "field 'a' is of int4"),
    "out of order": ({"names": ["b", "a"], "formats": ["f4", "u1"], "offsets": [4, 0]}, "order or overlap"),
    "overlapping": ({"names": ["b", "a"], "formats": ["f4", "u4"], "offsets": [0, 2]}, "order or overlap"),
    "out of order inside": (
        [("outer", {"names": ["b", "a"], "formats": ["f4", "u1"], "offsets": [4, 0]})], "order or overlap"
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", UNSAYABLE)
def test_what_no_description_says_is_refused_and_named(broker, form):
    dtype, words = UNSAYABLE[form]
    array = np.zeros((2,), dtype)
    for ask in (
        lambda: broker.put(array, "records"),
        lambda: broker.convert(array, "numpy", copy=True),
        lambda: convert_memory(array, "numpy", "numpy", copy=True),
        lambda: convert_memory(array, "numpy", "torch", None),
        lambda: broker.empty((2,), dtype, "numpy"),
    ):
        with pytest.raises(UnsupportedDtype, match=words):
            ask()
    assert convert_memory(array, "numpy", "numpy") is array


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "u1"), ("b", "f4")], align=True),
        {"names": ["a", "c"], "formats": ["f4", "u1"], "offsets": [0, 10], "itemsize": 16},
        [(("a title", "n"), "f2"), ("when", "M8[s]"), ("text", "U2"), ("pair", [("x", "i2")], (2,))],
        [("a", ">f4"), ("b", [("c", ">i2")])],
        np.dtype((np.record, [("a", "f4")])),
    ],
    ids=["aligned", "gaps", "kinds", "swapped", "record"],
)
def test_every_other_keeps_its_dtype_and_bits(broker, dtype):
    array = np.zeros(3, dtype)
    array.view(np.uint8)[:] = np.arange(array.nbytes, dtype="u1") % 7
    for got in (
        broker.put(array).to("numpy"), broker.convert(array, "numpy", copy=True),
        convert_memory(array, "numpy", "numpy", copy=True),
    ):  # fmt: skip
        assert got.dtype == array.dtype.newbyteorder("=") and got is not array
        for name in array.dtype.names:
            assert got[name].tolist() == array[name].tolist()
    assert broker.empty((2,), array.dtype.newbyteorder("="), "numpy").dtype == array.dtype.newbyteorder("=")


@pytest.mark.filterwarnings("ignore::arraybridge.CopyWarning")
@pytest.mark.parametrize("shape", [(2, 2), (0, 0), (1, 1, 3)])
def test_pyarrow_has_no_tensor_of_booleans(broker, shape):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    values = np.ones(shape, bool)
    for ask in (lambda: broker.plan(values, "pyarrow"), lambda: broker.convert(values, "pyarrow")):
        with pytest.raises(UnsupportedDtype, match="bool in one dimension only") as refusal:
            ask()
        assert (refusal.value.source_type, refusal.value.target_type) == ("numpy", "pyarrow")
    broker.put(values, "wide")
    with pytest.raises(UnsupportedDtype, match="bool in one dimension only"):
        broker.get("wide", "pyarrow")
    flat = broker.convert(values.reshape(-1), "pyarrow")
    assert flat.type == pyarrow.bool_() and flat.to_pylist() == [True] * values.size


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_double))


class Swapped(ctypes.BigEndianStructure):
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_double))


class Packed(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("x", ctypes.c_int), ("y", ctypes.c_float))


@pytest.mark.parametrize("kind", [Point, Swapped, Packed])
def test_structs_of_c_are_records(broker, kind):
    """The buffers of ctypes call a packed struct one number of 8 bytes."""
    one, two = kind(1, 2.5), (kind * 2)((3, 4.5), (5, 6.5))
    for got, wanted in (
        (broker.get(broker.put(one)), (1, 2.5)),
        (broker.get(broker.put({"two": two}))["two"], [(3, 4.5), (5, 6.5)]),
        (broker.convert(two, "numpy"), [(3, 4.5), (5, 6.5)]),
    ):
        assert got.dtype.names == ("x", "y") and got.tolist() == wanted


def test_a_union_of_c_is_no_number(broker):
    union = type("Either", (ctypes.Union,), {"_fields_": [("x", ctypes.c_int), ("y", ctypes.c_double)]})
    with pytest.raises(UnsupportedDtype, match="overlap"):
        broker.put((union * 2)())


@pytest.mark.parametrize("value", [np.datetime64("2026-03-04"), np.datetime64("NaT"), np.timedelta64(5, "ms"), np.zeros(1, "i4,f8")[0]])
def test_scalars_of_numpy_are_arrays_without_dimensions(broker, value):
    got = broker.get(broker.put({"array": np.ones(2), "value": value}))["value"]
    assert got.shape == () and got.dtype == value.dtype and str(got[()]) == str(value)
    assert str(broker.get(broker.put(value))[()]) == str(value)
