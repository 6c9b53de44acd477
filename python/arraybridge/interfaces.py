"""Array interfaces: how objects describe their memory in words that are older than DLPack, made one dictionary.

Forms: `__array_interface__` (version 3, and 2, whose address is hexadecimal text), `__array_struct__` (a C structure in a
capsule), and the attributes of version 2, one for each key. An attribute counts on a class and on one object alone.
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
    """What the object, or its class, says under this name; None if it says nothing. Classes describe no memory.

    Raises:
        Exception: whatever a property of its class raises, but for AttributeError: some arrays have an interface on one kind
            of device alone.
    """
    if isinstance(source, type):
        return None
    try:
        return getattr(source, name, None)
    except Exception:
        if hasattr(type(source), name):
            raise
        return None  # an object that answers for another one


def speaks(source: object) -> bool:
    """Whether it has an interface, be that one that says nothing that could be read."""
    try:
        return of_gpu(source) is not None or of(source) is not None
    except Exception:
        return True


def of_gpu(source: object) -> Interface | None:
    """Its `__cuda_array_interface__`."""
    found = attribute(source, CUDA)
    return found if isinstance(found, dict) else None


def of(source: object) -> Interface | None:
    """Its memory on the host in the words of version 3, by the first form that it has; a dictionary of a version that is
    neither 2 nor 3 as it is.

    Raises:
        BufferError: a form that says nothing that could be read.
    """
    for read in FORMS.values():
        found = read(source)
        if found is not None:
            return found
    return None


def _of_dictionary(source: object) -> Interface | None:
    said = attribute(source, DICTIONARY)
    if not isinstance(said, dict):
        return None
    return _version_3(said) if said.get("version") == 2 else said


def _of_structure(source: object) -> Interface | None:
    capsule = attribute(source, STRUCTURE)
    return _structure_in(capsule) if type(capsule).__name__ == "PyCapsule" else None


def _of_attributes(source: object) -> Interface | None:
    if not all(isinstance(attribute(source, name), kind) for name, kind in _REQUIRED.items()):
        return None
    return _version_3({key: attribute(source, f"__array_{key}__") for key in _KEYS})


# How `of` reads each form, in the order in which it asks.
FORMS: Final = {DICTIONARY: _of_dictionary, STRUCTURE: _of_structure, ATTRIBUTES: _of_attributes}


def _structure_in(capsule: Any) -> Interface:
    """NumPy's PyArrayInterface in a capsule without a name.

    Raises:
        BufferError: the capsule holds no such structure.
    """
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    try:
        address = pointer(capsule, None)
    except ValueError as error:
        raise BufferError(f"{STRUCTURE} is a capsule of something else: {capsule!r}") from error
    said: Any = _Structure.from_address(address)
    shaped = not said.nd or bool(said.shape)
    if said.two != 2 or not 0 <= said.nd <= RANK_MAX or said.itemsize < 1 or not shaped:
        numbers = f"two={said.two}, nd={said.nd}, itemsize={said.itemsize}"
        raise BufferError(f"{STRUCTURE} holds no PyArrayInterface of up to {RANK_MAX} dimensions: {numbers}")
    order = "|" if said.itemsize == 1 else "<" if said.flags & _NOT_SWAPPED else ">"
    return {
        "version": 3,
        "shape": tuple(said.shape[: said.nd]) if said.nd else (),
        "typestr": f"{order}{said.typekind.decode('latin-1')}{said.itemsize}",
        "data": (said.data or 0, not said.flags & _WRITABLE),
        "strides": tuple(said.strides[: said.nd]) if said.nd and said.strides else None,
        "capsule": capsule,  # keeps what it points to
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


def _version_3(said: Interface) -> Interface:
    data: Any = said.get("data")
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], str):
        try:
            data = int(data[0], 16), data[1]
        except ValueError as error:
            raise BufferError(f"data of the array interface is no hexadecimal address: {data[0][:40]!r}") from error
    return {**said, "data": data, "version": 3}

