# SPDX-License-Identifier: Apache-2.0
"""Array interfaces: descriptions of memory that are older than DLPack, converted to one dictionary.

Forms: `__array_interface__` (version 3, and 2, whose address is hexadecimal text), `__array_struct__` (a C structure in
a capsule), and the attributes of version 2, one for each key. An attribute may be on the class or on a single object.
https://numpy.org/doc/stable/reference/arrays.interface.html
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

Interface = dict[str, Any]
CUDA: Final = "__cuda_array_interface__"
DICTIONARY: Final = "__array_interface__"
STRUCTURE: Final = "__array_struct__"
ATTRIBUTES: Final = "__array_shape__, __array_typestr__ and others"
_REQUIRED: Final = {"__array_shape__": tuple, "__array_typestr__": str}
_KEYS: Final = ("shape", "typestr", "data", "strides", "offset", "mask")
RANK_MAX: Final = 64
_NOT_SWAPPED, _WRITABLE = 0x200, 0x400


def attribute(source: object, name: str) -> Any:
    """The object's or its class's attribute of this name; None if there is none. Classes themselves have no memory.

    Raises:
        Exception: any exception of a property of its class except AttributeError, because some arrays have an interface
            only on one kind of device.
    """
    if isinstance(source, type):
        return None
    try:
        return getattr(source, name, None)
    except Exception:
        if hasattr(type(source), name):
            raise
        return None  # a proxy that answers for another object


def speaks(source: object) -> bool:
    """True if it has an interface, even an unreadable one."""
    try:
        return of_gpu(source) is not None or of(source) is not None
    except Exception:
        return True


def of_gpu(source: object) -> Interface | None:
    """Its `__cuda_array_interface__`."""
    found = attribute(source, CUDA)
    return found if isinstance(found, dict) else None


def of(source: object) -> Interface | None:
    """Its memory on the host in the terms of version 3, by the first form that it has; returns a dictionary of another
    version than 2 and 3 unchanged.

    Raises:
        BufferError: an unreadable form.
    """
    for read in FORMS.values():
        found = read(source)
        if found is not None:
            return found
    return None


def _of_dictionary(source: object) -> Interface | None:
    interface = attribute(source, DICTIONARY)
    if not isinstance(interface, dict):
        return None
    return _version_3(interface) if interface.get("version") == 2 else interface


def _of_structure(source: object) -> Interface | None:
    capsule = attribute(source, STRUCTURE)
    return _structure_in(capsule) if type(capsule).__name__ == "PyCapsule" else None


def _of_attributes(source: object) -> Interface | None:
    if not all(isinstance(attribute(source, name), kind) for name, kind in _REQUIRED.items()):
        return None
    return _version_3({key: attribute(source, f"__array_{key}__") for key in _KEYS})


# The readers of `of`, in the order of preference.
FORMS: Final = {DICTIONARY: _of_dictionary, STRUCTURE: _of_structure, ATTRIBUTES: _of_attributes}


def _structure_in(capsule: Any) -> Interface:
    """NumPy's PyArrayInterface in a capsule without a name.

    Raises:
        BufferError: the capsule contains no such structure.
    """
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    try:
        address = pointer(capsule, None)
    except ValueError as error:
        raise BufferError(f"{STRUCTURE} is a capsule of another kind: {capsule!r}") from error
    structure: Any = _Structure.from_address(address)
    shaped = not structure.nd or bool(structure.shape)
    if structure.two != 2 or not 0 <= structure.nd <= RANK_MAX or structure.itemsize < 1 or not shaped:
        numbers = f"two={structure.two}, nd={structure.nd}, itemsize={structure.itemsize}"
        raise BufferError(f"{STRUCTURE} contains no PyArrayInterface of up to {RANK_MAX} dimensions: {numbers}")
    order = "|" if structure.itemsize == 1 else "<" if structure.flags & _NOT_SWAPPED else ">"
    return {
        "version": 3,
        "shape": tuple(structure.shape[: structure.nd]) if structure.nd else (),
        "typestr": f"{order}{structure.typekind.decode('latin-1')}{structure.itemsize}",
        "data": (structure.data or 0, not structure.flags & _WRITABLE),
        "strides": tuple(structure.strides[: structure.nd]) if structure.nd and structure.strides else None,
        "capsule": capsule,  # keeps its content alive
    }


class _Structure(ctypes.Structure):
    _fields_ = (
        ("two", ctypes.c_int),
        ("nd", ctypes.c_int),
        ("typekind", ctypes.c_char),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
        ("strides", ctypes.POINTER(ctypes.c_ssize_t)),
        ("data", ctypes.c_void_p),
    )


def _version_3(interface: Interface) -> Interface:
    data: Any = interface.get("data")
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], str):
        try:
            data = int(data[0], 16), data[1]
        except ValueError as error:
            raise BufferError(f"data of the array interface is not a hexadecimal address: {data[0][:40]!r}") from error
    return {**interface, "data": data, "version": 3}
