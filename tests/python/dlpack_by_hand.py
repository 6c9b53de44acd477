# SPDX-License-Identifier: Apache-2.0
"""DLPack's structs in ctypes: producers and consumers whose every field can be wrong, and memory whose end is seen."""

import ctypes
import weakref

import numpy as np
from arrays import aligned

from arraybridge import _core

c = ctypes
RANK_MAX = 64


class Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("id", c.c_int32)]


class DType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p),
        ("device", Device),
        ("ndim", c.c_int32),
        ("dtype", DType),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


Deleter = c.CFUNCTYPE(None, c.c_void_p)  # releases the GIL around a call


class Legacy(c.Structure):
    _fields_ = [("tensor", Tensor), ("context", c.c_void_p), ("deleter", c.c_void_p)]


class Versioned(c.Structure):
    _fields_ = [
        ("major", c.c_uint32),
        ("minor", c.c_uint32),
        ("context", c.c_void_p),
        ("deleter", c.c_void_p),
        ("flags", c.c_uint64),
        ("tensor", Tensor),
    ]


api = c.pythonapi
api.PyCapsule_New.restype = c.py_object
api.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
api.PyCapsule_GetPointer.restype = c.c_void_p
api.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
api.PyCapsule_GetName.restype = c.c_char_p
api.PyCapsule_GetName.argtypes = [c.py_object]
api.PyCapsule_SetName.argtypes = [c.py_object, c.c_char_p]


def read(capsule):
    """The managed tensor in a live capsule."""
    name = api.PyCapsule_GetName(capsule)
    kind = {b"dltensor": Legacy, b"dltensor_versioned": Versioned}[name]
    return c.cast(api.PyCapsule_GetPointer(capsule, name), c.POINTER(kind)).contents


def consume(capsule):
    """As a consumer takes it; returns (tensor, deleter)."""
    managed = read(capsule)
    name = api.PyCapsule_GetName(capsule)
    used = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}[name]
    CONSUMED.append(used)  # PyCapsule keeps the pointer, not the characters
    api.PyCapsule_SetName(capsule, used)
    return managed, Deleter(managed.deleter)


CONSUMED: list[bytes] = []


class Producer:
    """A foreign array of six float32 whose capsule may be spoiled; counts its deletions."""

    def __init__(self, versioned=True, shape=(2, 3), strides=None, **fields):
        self.values = (c.c_float * 64)(*range(64))
        self.deletes = 0
        self.shape = (c.c_int64 * max(len(shape), 1))(*shape)
        self.strides = None if strides is None else (c.c_int64 * max(len(strides), 1))(*strides)
        self.name = b"dltensor_versioned" if versioned else b"dltensor"
        self.managed = Versioned() if versioned else Legacy()
        tensor = self.managed.tensor
        tensor.data = c.addressof(self.values)
        tensor.device = Device(1, 0)
        tensor.ndim = len(shape)
        tensor.dtype = DType(2, 32, 1)
        tensor.shape = self.shape
        if self.strides is not None:
            tensor.strides = self.strides
        if versioned:
            self.managed.major, self.managed.minor = 1, 0
        self._deleter = Deleter(self._delete)
        self.managed.deleter = c.cast(self._deleter, c.c_void_p).value
        for key, value in fields.items():
            setattr(self.managed if hasattr(self.managed, key) else tensor, key, value)

    def _delete(self, _):
        self.deletes += 1

    def capsule(self):
        return api.PyCapsule_New(c.addressof(self.managed), self.name, None)


class Holder:
    """A producer of one capsule that exists already."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return 1, 0


class Owner(bytearray):
    """Memory whose end can be seen."""


def owned(count=6):
    owner = Owner(np.arange(count, dtype=np.float32).tobytes())
    view = _core.wrap_array_interface({"version": 3, "shape": (count,), "typestr": "<f4", "data": owner}, owner)
    return view, weakref.ref(owner)


def read_only_view():
    source = aligned((6,))
    source.flags.writeable = False
    return _core.wrap(source), source
