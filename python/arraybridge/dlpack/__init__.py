# SPDX-License-Identifier: Apache-2.0
"""DLPack with the names of the pydlpack package: replace `import dlpack` by `from arraybridge import dlpack`.

Every `asdlpack...` returns a View, which exports the dialect that its consumer requests.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import TYPE_CHECKING, Any, Final

from arraybridge.arrays import interfaces
from arraybridge.asdlpack import asdlpack as _asdlpack, by_protocol
from arraybridge.errors import UnsupportedArray

if TYPE_CHECKING:
    from arraybridge._core import View

__all__ = [
    "DLManagedTensor",
    "DLManagedTensorVersioned",
    "asdlpack",
    "asdlpack_array_interface_v2",
    "asdlpack_array_interface_v3",
    "asdlpack_buffer",
    "asdlpack_cuda_array_interface",
    "asdlpack_dlpack",
    "todict",
]

_DEVICES: Final = {
    1: "DLCPU", 2: "DLCUDA", 3: "DLCUDAHost", 4: "DLOpenCL", 7: "DLVulkan", 8: "DLMetal", 9: "DLVPI", 10: "DLROCM",
    11: "DLROCMHost", 12: "DLExtDev", 13: "DLCUDAManaged", 14: "DLOneAPI", 15: "DLWebGPU", 16: "DLHexagon", 17: "DLMAIA",
    18: "DLTrn",
}  # fmt: skip
_CODES: Final = (
    "DLInt", "DLUInt", "DLFloat", "DLOpaqueHandle", "DLBfloat", "DLComplex", "DLBool", "DLFloat8_e3m4", "DLFloat8_e4m3",
    "DLFloat8_e4m3b11fnuz", "DLFloat8_e4m3fn", "DLFloat8_e4m3fnuz", "DLFloat8_e5m2", "DLFloat8_e5m2fnuz",
    "DLFloat8_e8m0fnu", "DLFloat6_e2m3fn", "DLFloat6_e3m2fn", "DLFloat4_e2m1fn",
)  # fmt: skip
_MAJOR: Final = 1  # for another major version only the deleter may be read


class _Device(ctypes.Structure):
    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class DLManagedTensor(ctypes.Structure):
    """The content of a capsule named "dltensor"."""

    _fields_ = (("dl_tensor", _Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class DLManagedTensorVersioned(ctypes.Structure):
    """The content of a capsule named "dltensor_versioned"."""

    _fields_ = (
        ("version", _Version),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("dl_tensor", _Tensor),
    )


_KINDS: Final = {b"dltensor": DLManagedTensor, b"dltensor_versioned": DLManagedTensorVersioned}
_Kind = type[DLManagedTensor] | type[DLManagedTensorVersioned] | None


def __getattr__(name: str) -> Any:
    if name != "tests":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.tests")


def asdlpack(obj: Any, impl_cls: _Kind = None) -> View:
    """arraybridge.asdlpack with pydlpack's signature.

    Args:
        impl_cls: None, DLManagedTensor or DLManagedTensorVersioned. A View supports both: the consumer chooses with
            `max_version`.

    Raises:
        TypeError: another `impl_cls`. Other errors of arraybridge.asdlpack.
    """
    _check(impl_cls)
    return _asdlpack(obj)


def asdlpack_dlpack(obj: Any, impl_cls: _Kind = None) -> View:
    """A View of an object by its `__dlpack__`. Raises as `asdlpack`, also for an object without it."""
    _check(impl_cls)
    return by_protocol(obj, "dlpack")


def asdlpack_array_interface_v3(obj: Any, impl_cls: _Kind = None) -> View:
    """A View of an object by its `__array_interface__`. Raises as `asdlpack`, also for an object without it."""
    _check(impl_cls)
    return by_protocol(obj, interfaces.DICTIONARY)


def asdlpack_array_interface_v2(obj: Any, impl_cls: _Kind = None) -> View:
    """A View of an object by `__array_shape__`, `__array_typestr__` and related attributes. Raises as `asdlpack`, also
    for an object without them.
    """
    _check(impl_cls)
    return by_protocol(obj, interfaces.ATTRIBUTES)


def asdlpack_cuda_array_interface(obj: Any, impl_cls: _Kind = None) -> View:
    """A View of an object by its `__cuda_array_interface__`. Raises as `asdlpack`, also for an object without it."""
    _check(impl_cls)
    return by_protocol(obj, interfaces.CUDA)


def asdlpack_buffer(obj: Any, impl_cls: _Kind = None) -> View:
    """A View of an object by the buffer protocol. Raises as `asdlpack`, also for an object without it."""
    _check(impl_cls)
    return by_protocol(obj, "buffer")


def todict(capsule: Any) -> dict[str, Any]:
    """The fields of an unused DLPack capsule; does not consume it.

    Returns:
        "dl_tensor" (data, device, ndim, dtype, shape and strides as tuples of ints, in elements, or None, byte_offset),
        "manager_ctx" and "deleter" as addresses; of a "dltensor_versioned" also "version" and "flags". Devices and dtype codes
        are DLPack's words, as "DLCPU" and "DLFloat", or the number where it has none.

    Raises:
        UnsupportedArray: (a TypeError) not a DLPack capsule, or a consumed one, or one of another major version.
    """
    if type(capsule).__name__ != "PyCapsule":
        raise _refused(type(capsule).__name__, f"expected a DLPack capsule, as array.__dlpack__() makes it, not {type(capsule).__name__}")
    name = _name(capsule)
    kind = _KINDS.get(name or b"")
    if kind is None:
        raise _refused("PyCapsule", f"a capsule named {(name or b'').decode('utf-8', 'replace')!r} is not an unused DLPack capsule")
    tensor = kind.from_address(_pointer(capsule, name))
    if isinstance(tensor, DLManagedTensorVersioned) and tensor.version.major != _MAJOR:
        raise _refused("PyCapsule", f"DLPack version {tensor.version.major}.{tensor.version.minor} is not supported")
    return {field[0]: _plain(tensor, field[0]) for field in tensor._fields_}


def _plain(tensor: Any, name: str) -> Any:
    value = getattr(tensor, name)
    if name == "dl_tensor":
        return {field[0]: _plain(value, field[0]) for field in value._fields_}
    if name in ("shape", "strides"):
        return tuple(value[: tensor.ndim]) if value else None
    if name == "device":
        return {"device_type": _DEVICES.get(value.device_type, value.device_type), "device_id": value.device_id}
    if name == "dtype":
        code = _CODES[value.code] if value.code < len(_CODES) else value.code
        return {"code": code, "bits": value.bits, "lanes": value.lanes}
    return {"major": value.major, "minor": value.minor} if name == "version" else value


def _check(impl_cls: object) -> None:
    if impl_cls is not None and impl_cls not in _KINDS.values():
        raise TypeError(f"impl_cls must be None, DLManagedTensor or DLManagedTensorVersioned, not {impl_cls!r}")


def _refused(kind: str, reason: str) -> UnsupportedArray:
    return UnsupportedArray(kind, "any", "asdlpack", reason)


_name: Final = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
