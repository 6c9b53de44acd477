# SPDX-License-Identifier: Apache-2.0
"""Array interfaces in every form that objects have had: version 2 and 3, a C structure, of a class and of one object alone."""

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import arraybridge
from arraybridge import UnsupportedArray, asdlpack
from arraybridge.arrays.interfaces import RANK_MAX, STRUCTURE

api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
SWAPPED, WRITABLE = 0, 0x400


def values():
    return np.arange(6, dtype="f4").reshape(2, 3)


def address(array):
    return array.__array_interface__["data"][0]


def like(source, **changes):
    """An object that alone, without its class, has the array interface of `source`."""
    said = {**source.__array_interface__, **changes}
    return SimpleNamespace(__array_interface__={key: each for key, each in said.items() if each is not ...}, kept=source)


class Version2:
    """The interface of before NumPy 1.0: every key is an attribute, and an address is text."""

    def __init__(self, source, **more):
        self.source = source
        said = source.__array_interface__
        self.__array_shape__, self.__array_typestr__ = said["shape"], said["typestr"]
        self.__array_data__ = hex(said["data"][0]), said["data"][1]
        self.__dict__.update(more)


@pytest.mark.parametrize(
    "make", [np.array, lambda a: a[:, ::2], lambda a: a.T, lambda a: a[:0]], ids=["plain", "stepped", "turned", "empty"]
)
def test_every_form_is_the_same_memory(make):
    source = np.asarray(make(values()))
    strides = {"__array_strides__": source.strides}
    for described in (
        like(source),
        like(source, version=2),
        like(source, version=2, data=(hex(address(source)), False)),
        Version2(source, **strides),
        SimpleNamespace(__array_struct__=source.__array_struct__),
    ):
        view = asdlpack(described)
        assert np.array_equal(np.from_dlpack(view), source) and view.address == (address(source) if source.size else 0)
        assert not view.read_only and view.strides == asdlpack(source).strides


@pytest.mark.parametrize(
    "dtype", "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)
def test_every_number_type_in_every_form(dtype):
    source = np.ones(3, dtype)
    for described in (Version2(source), SimpleNamespace(__array_struct__=source.__array_struct__)):
        assert asdlpack(described).dtype == source.dtype and np.from_dlpack(asdlpack(described)).tolist() == source.tolist()


def test_read_only_is_said_in_every_form():
    source = values()
    source.flags.writeable = False
    for described in (like(source), Version2(source), SimpleNamespace(__array_struct__=source.__array_struct__)):
        assert asdlpack(described).read_only
        assert arraybridge.convert_memory(described, None, "numpy").tolist() == source.tolist()


def test_what_a_form_describes_lives_as_long_as_its_view():
    class Held:
        __slots__ = ("__weakref__", "array")

        def __init__(self):
            self.array = values()

        @property
        def __array_struct__(self):
            return self.array.__array_struct__

    source = Held()
    count = sys.getrefcount(source.array)
    view = asdlpack(source)
    assert sys.getrefcount(source.array) > count
    array = source.array
    del source
    assert np.from_dlpack(view).tolist() == values().tolist()
    del view
    assert sys.getrefcount(array) == 2


def test_attributes_of_one_object_count_and_those_of_a_class_object_do_not():
    source = values()
    producer = SimpleNamespace(__dlpack__=source.__dlpack__, __dlpack_device__=source.__dlpack_device__)
    assert asdlpack(producer).address == address(source)
    for nothing in (np.ndarray, Version2, SimpleNamespace(__array_interface__=3), SimpleNamespace(__array_struct__=3)):
        with pytest.raises(UnsupportedArray, match="supports no array protocol"):
            asdlpack(nothing)


class Answering:
    """Answers any name, as remote objects do; its answers are no interfaces."""

    def __getattr__(self, name):
        return lambda *_, **__: pytest.fail("was called")


class Raising:
    def __getattr__(self, name):
        raise RuntimeError(name)


class Broken:
    @property
    def __array_interface__(self):
        raise RuntimeError("broken")


def test_objects_that_answer_for_others():
    for nothing in (Answering(), Raising()):
        with pytest.raises(UnsupportedArray, match="supports no array protocol"):
            asdlpack(nothing)
    with pytest.raises(UnsupportedArray, match="broken") as caught:
        asdlpack(Broken())
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(UnsupportedArray, match="broken"):
        arraybridge.convert_memory(Broken(), None, "numpy")


def test_an_interface_without_data_is_the_objects_own_bytes_or_a_clear_error():
    class Bytes(bytearray):
        pass

    memory = Bytes(values().tobytes())
    memory.__array_interface__ = {"version": 3, "typestr": "<f4", "shape": (2, 2), "offset": 8}
    assert np.from_dlpack(asdlpack(memory)).tolist() == [[2, 3], [4, 5]], "of the dtype and shape that it says"
    np.from_dlpack(asdlpack(memory))[0, 0] = 9
    assert memory[8:12] == np.float32(9).tobytes()
    memory.__array_interface__["shape"] = (2, 3)
    with pytest.raises(BufferError):
        asdlpack(memory)
    for described in (like(values(), data=...), like(values(), data=None), Version2(values(), __array_data__=None)):
        with pytest.raises(UnsupportedArray, match=f"{type(described).__name__} has no data"):
            asdlpack(described)
    with pytest.raises(UnsupportedArray, match="has no data"):
        asdlpack(SimpleNamespace(__cuda_array_interface__={"version": 3, "typestr": "<f4", "shape": (2,)}))


@pytest.mark.parametrize(
    "more",
    [
        {"__array_mask__": np.ones(6, "?")}, {"__array_typestr__": ">f4"}, {"__array_typestr__": "|V4"},
        {"__array_data__": ("no hex", False)}, {"__array_data__": ("0x10",)}, {"__array_shape__": (-1,)},
        {"__array_strides__": (5, 4)}, {"__array_typestr__": 3},
    ],
    ids=str,
)  # fmt: skip
def test_version_2_that_dlpack_cannot_say(more):
    with pytest.raises(BufferError):
        asdlpack(Version2(values(), **more))


class Structure(ctypes.Structure):
    _fields_ = [
        ("two", ctypes.c_int), ("nd", ctypes.c_int), ("typekind", ctypes.c_char), ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int), ("shape", ctypes.POINTER(ctypes.c_ssize_t)), ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("data", ctypes.c_void_p), ("descr", ctypes.c_void_p),
    ]  # fmt: skip


class Described:
    """A structure with any field wrong, in a capsule."""

    def __init__(self, name=None, **changes):
        self.source = values()
        sizes = (ctypes.c_ssize_t * 2)(2, 3)
        strides = (ctypes.c_ssize_t * 2)(12, 4)
        fields = {
            "two": 2, "nd": 2, "typekind": b"f", "itemsize": 4, "flags": 0x200 | WRITABLE, "shape": sizes, "strides": strides,
            "data": address(self.source),
        }  # fmt: skip
        self.kept = Structure(**{**fields, **changes})
        self.__array_struct__ = api.PyCapsule_New(ctypes.addressof(self.kept), name, None)


def test_the_structure():
    assert np.from_dlpack(asdlpack(Described())).tolist() == values().tolist()
    assert np.from_dlpack(asdlpack(Described(strides=None))).tolist() == values().tolist()
    assert asdlpack(Described(flags=0x200)).read_only
    assert asdlpack(Described(nd=0, shape=None, strides=None)).shape == ()
    assert np.from_dlpack(asdlpack(Described(typekind=b"u", itemsize=1, flags=SWAPPED, strides=None))).shape == (2, 3)


@pytest.mark.parametrize(
    "changes",
    [
        {"two": 3}, {"nd": -1}, {"nd": RANK_MAX + 1}, {"itemsize": 0}, {"itemsize": -4}, {"shape": None}, {"flags": SWAPPED},
        {"typekind": b"V"}, {"typekind": b"t"}, {"itemsize": 16}, {"data": None}, {"name": b"another"},
    ],
    ids=str,
)  # fmt: skip
def test_structures_that_are_none_are_refused_before_they_are_read(changes):
    with pytest.raises(BufferError) as caught:
        asdlpack(Described(**changes))
    assert type(caught.value) is UnsupportedArray
    if "two" in changes or "name" in changes:
        assert STRUCTURE in str(caught.value)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 3), (0,), (3, 0)])
def test_the_stride_of_one_row_says_nothing(shape):
    source = np.zeros(shape, [("a", "i4"), ("b", "i1")])["a"]
    if shape == (1, 3):
        source = np.lib.stride_tricks.as_strided(np.arange(3, dtype="i4"), shape, (5, 4))
    view = asdlpack(source)
    assert view.shape == shape and np.array_equal(np.from_dlpack(view), source)
    plan = arraybridge.Broker("/nonexistent", start="never").plan(source, "torch")
    assert plan.zero_copy and arraybridge.convert_memory(source, "numpy", "numpy", copy=False) is source
    with pytest.raises(BufferError, match="multiple of the item size"):
        asdlpack(np.zeros(2, [("a", "i4"), ("b", "i1")])["a"])


def test_sources_of_any_form_are_put_and_converted(broker):
    source = values()
    broker.put(Version2(source), "a")
    broker.put(SimpleNamespace(__array_struct__=source.__array_struct__), "b")
    broker.put(like(source, version=2), "c")
    assert all((broker.get(name) == source).all() for name in "abc")
    assert broker.convert(Version2(source), "numpy", copy=False).ctypes.data == address(source)
