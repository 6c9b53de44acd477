# SPDX-License-Identifier: Apache-2.0
"""A View as a buffer (PEP 3118) and by the array interface."""

import array
import mmap
import zlib

import numpy as np
import pytest
from dlpack_by_hand import RANK_MAX, DType, Producer, c, read

from arraybridge import _core

NUMBERS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_type_of_numpy_both_ways(dtype):
    source = np.ones((2, 3), dtype)
    for view in (_core.wrap(source), _core.wrap_buffer(source), _core.wrap_array_interface(source.__array_interface__, source)):
        assert view.dtype == dtype
        for result in (np.from_dlpack(view), np.asarray(memoryview(view)), np.asarray(view), view.__array__()):
            assert result.dtype == source.dtype
            assert result.ctypes.data == source.ctypes.data
            assert np.array_equal(result, source)


@pytest.mark.parametrize("make", [lambda a: a.T, lambda a: a[::2], lambda a: a[:, ::-1], lambda a: a[:0], lambda a: a[1, 2]])
def test_layouts(make):
    source = np.asarray(make(np.arange(24.0).reshape(4, 6)))
    expected = source.copy()
    for view in (_core.wrap(source), _core.wrap_buffer(source), _core.wrap_array_interface(source.__array_interface__, source)):
        assert np.array_equal(np.from_dlpack(view), expected)
        assert np.array_equal(np.asarray(view), expected)
        assert np.array_equal(np.from_dlpack(_core.copy_to_heap(view)), expected)
        assert view.compact == source.flags.c_contiguous
        assert view.nbytes == source.nbytes


def test_a_strided_view_is_no_flat_buffer():
    view = _core.wrap(np.arange(24.0).reshape(4, 6).T)
    with pytest.raises(BufferError):
        zlib.crc32(view)  # asks for bytes without strides
    assert memoryview(view).f_contiguous


@pytest.mark.parametrize("source", [b"bytes", memoryview(b"bytes"), np.arange(5, dtype=np.uint8).data.toreadonly()])
def test_read_only_buffers(source):
    view = _core.wrap_buffer(source)
    assert view.read_only
    with pytest.raises(BufferError):
        _core.wrap_buffer(source, read_only=False)


@pytest.mark.parametrize("source", [bytearray(8), array.array("d", [1]), (c.c_int16 * 4)(), mmap.mmap(-1, 8)])
def test_writable_buffers(source):
    view = _core.wrap_buffer(source)
    assert not view.read_only
    assert view.nbytes == 8
    np.frombuffer(view, np.uint8)[0] = 7
    assert bytes(memoryview(source))[0] == 7
    assert _core.wrap_buffer(source, read_only=True).read_only


def test_the_buffer_is_held():
    source = bytearray(8)
    view = _core.wrap_buffer(source)
    with pytest.raises(BufferError):
        source.extend(b"more")
    del view
    source.extend(b"more")


@pytest.mark.parametrize(
    "source",
    [
        np.zeros(3, ">f4"),
        np.zeros(3, "S3"),
        np.zeros(3, "U3"),
        np.zeros(3, object),
        np.zeros(3, [("a", "i4")]),
        np.zeros(3, np.longdouble),
        np.zeros(3, np.clongdouble),
        np.zeros(3, "M8[ns]"),
        np.zeros(3, [("a", "u1"), ("b", "<f4")])["b"],
    ],
    ids=str,
)
def test_what_dlpack_cannot_say_is_a_buffer_error(source):
    with pytest.raises((BufferError, ValueError)) as refusal:
        _core.wrap_buffer(source)
    if source.dtype.kind != "M":  # NumPy itself refuses to export datetimes, by ValueError
        assert isinstance(refusal.value, BufferError)
    with pytest.raises(BufferError):
        _core.wrap_array_interface(source.__array_interface__, source)


def interface(**changes):
    source = np.arange(6, dtype=np.float32)
    return {**source.__array_interface__, **changes}, source


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": None},
        {"mask": np.zeros(6, bool)},
        {"typestr": "<V4"},
        {"typestr": "f4"},
        {"typestr": "<f16"},
        {"typestr": "<f999"},
        {"typestr": 4},
        {"shape": None},
        {"shape": [6]},
        {"shape": (-1,)},
        {"shape": (2**62, 4)},
        {"shape": (2**70,)},
        {"shape": (1,) * (RANK_MAX + 1)},
        {"strides": (5,)},
        {"strides": (4, 4)},
        {"data": (0, False)},
        {"data": (2**70, False)},
        {"data": (1,)},
        {"data": bytearray(23)},
        {"data": bytearray(27), "offset": 4},
        {"data": bytearray(64), "offset": -1},
        {"data": bytearray(64), "strides": (-4,)},
    ],
    ids=str,
)
def test_hostile_array_interfaces_are_buffer_errors(changes):
    said, source = interface(**changes)
    with pytest.raises(BufferError):
        _core.wrap_array_interface(said, source)


def test_array_interface_data_forms():
    data = bytearray(np.arange(8, dtype=np.float32).tobytes())
    view = _core.wrap_array_interface(interface(data=data, offset=8)[0], data)
    assert np.from_dlpack(view).tolist() == [2, 3, 4, 5, 6, 7]
    assert not view.read_only
    assert _core.wrap_array_interface(interface(data=bytes(data))[0], None).read_only
    said, source = interface()
    del said["data"]
    assert _core.wrap_array_interface(said, source).address == source.ctypes.data
    assert _core.wrap_array_interface({**said, "data": (source.ctypes.data, True)}, source).read_only


def test_types_outside_numpys_words():
    view = _core.wrap(Producer(dtype=DType(4, 16, 1)).capsule())
    assert view.dtype_name == "bfloat16"
    assert not hasattr(view, "__array_interface__")
    assert not hasattr(view, "__cuda_array_interface__")
    with pytest.raises(BufferError, match="bfloat16"):
        memoryview(view)
    with pytest.raises(TypeError, match="bfloat16"):
        np.asarray(view)
    assert read(view.__dlpack__()).tensor.dtype.code == 4


def test_named():
    view = _core.wrap(np.zeros(3, np.uint16))
    other = view.named("bfloat16", (4, 16, 1))
    assert (other.dtype_name, other.dtype_code, other.address) == ("bfloat16", (4, 16, 1), view.address)
    assert view.named("mine").dtype_code == (1, 16, 1)
    with pytest.raises(ValueError):
        view.named("float32", (2, 32, 1))
    with pytest.raises(TypeError):
        view.named("float32", 3)
