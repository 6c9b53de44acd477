# SPDX-License-Identifier: Apache-2.0
"""Arrow's C structures of other libraries, read by ctypes: they are small and stable, and so no further package is needed.

Source: https://arrow.apache.org/docs/format/CDataInterface.html and CStreamInterface.html. A producer is a library of this
process, and is trusted as its objects are.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final, NamedTuple

from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.errors import InvalidRequest, MemoryConversionError

_BATCHES_MAX: Final = 1 << 20


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


class _Stream(ctypes.Structure):
    pass


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.POINTER(_Schema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))),
    ("private_data", ctypes.c_void_p),
]
_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Stream))),
    ("private_data", ctypes.c_void_p),
]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Field(NamedTuple):
    """The schema of one array. A value."""

    format: str
    name: str
    metadata: bytes
    flags: int
    children: tuple[Field, ...]
    dictionary: Field | None


class Chunk(NamedTuple):
    """An array of a producer, and what releases it. Its children and its dictionary have the same owner."""

    array: Any
    owner: object

    @property
    def length(self) -> int:
        """Elements from the array's own offset on."""
        return int(self.array.length)

    @property
    def offset(self) -> int:
        """Elements of the buffers before the first one."""
        return int(self.array.offset)

    @property
    def nulls(self) -> int:
        """-1: the producer has not counted them."""
        return int(self.array.null_count)

    def child(self, index: int) -> Chunk:
        """The array of a field."""
        return Chunk(self.array.children[index].contents, self.owner)

    def dictionary(self) -> Chunk:
        """The values of the indices. REQUIRES: the field has a dictionary."""
        return Chunk(self.array.dictionary.contents, self.owner)

    def address(self, index: int) -> int:
        """Of a buffer; 0: there is none."""
        return int(self.array.buffers[index] or 0) if index < self.array.n_buffers else 0

    def buffer(self, index: int, dtype: str, start: int, count: int) -> Any:
        """Elements `start` to `start + count` of a buffer, as a read-only ndarray that keeps the producer's array."""
        np = numpy_adapter.module()
        found = np.dtype(dtype)
        address = self.address(index)
        if not count or not address:
            return np.zeros(count, found)
        memory = _Memory(address + start * found.itemsize, count * found.itemsize, self.owner)
        return np.asarray(memory).view(found)


class _Memory:
    """Bytes of a producer, for NumPy."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, True), "shape": (nbytes,), "typestr": "|u1", "version": 3}


class _Owned:
    """A structure that this process releases."""

    def __init__(self, structure: Any) -> None:
        self.structure = structure

    # `byref` is gone from its module when the interpreter ends.
    def __del__(self, byref: Any = ctypes.byref) -> None:
        if self.structure.release:
            self.structure.release(byref(self.structure))


def chunks_of(source: Any) -> tuple[Field, list[Chunk]]:
    """The schema and the chunks of an object with Arrow's stream or array interface. REQUIRES: its class has one.

    Raises:
        MemoryConversionError: its library fails.
    """
    if hasattr(type(source), "__arrow_c_stream__"):
        return _streamed(source)
    schema, array = source.__arrow_c_array__()
    pointer = _pointer_of(array, b"arrow_array")
    # The capsules own their structures.
    return _field(_Schema.from_address(_pointer_of(schema, b"arrow_schema"))), [Chunk(_Array.from_address(pointer), (schema, array))]


def _streamed(source: Any) -> tuple[Field, list[Chunk]]:
    capsule = source.__arrow_c_stream__()
    stream = _Stream.from_address(_pointer_of(capsule, b"arrow_array_stream"))
    kind = type(source).__name__
    schema = _Owned(_Schema())
    _check(stream, stream.get_schema(ctypes.byref(stream), ctypes.byref(schema.structure)), kind)
    field, chunks = _field(schema.structure), list[Chunk]()
    while True:
        owner = _Owned(_Array())
        _check(stream, stream.get_next(ctypes.byref(stream), ctypes.byref(owner.structure)), kind)
        if not owner.structure.release:
            del capsule  # which owns the stream
            return field, chunks
        if len(chunks) == _BATCHES_MAX:
            raise InvalidRequest(f"a table may have {_BATCHES_MAX} chunks: join them first (combine_chunks, rechunk)")
        chunks.append(Chunk(owner.structure, owner))


def _check(stream: Any, code: int, kind: str) -> None:
    if code:
        text = (stream.get_last_error(ctypes.byref(stream)) or b"").decode(errors="replace")
        raise MemoryConversionError(kind, "share", "hand_over", f"its library cannot export it: {text or f'error {code}'}")


def _field(schema: Any) -> Field:
    return Field(
        (schema.format or b"").decode(errors="surrogateescape"),
        (schema.name or b"").decode(errors="surrogateescape"),
        _metadata(schema.metadata),
        schema.flags,
        tuple(_field(schema.children[index].contents) for index in range(schema.n_children)),
        _field(schema.dictionary.contents) if schema.dictionary else None,
    )


def _metadata(address: int | None) -> bytes:
    """The bytes of a schema's metadata: the number of entries, then the size and the bytes of each key and value."""
    if not address:
        return b""
    size = 4
    for _ in range(2 * ctypes.c_int32.from_address(address).value):
        size += 4 + ctypes.c_int32.from_address(address + size).value
    return ctypes.string_at(address, size)
