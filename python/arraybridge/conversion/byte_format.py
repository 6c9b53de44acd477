# SPDX-License-Identifier: Apache-2.0
"""Arrays as bytes that keep dtype and shape, for pipes and files. The format is safetensors', of one tensor:

    8 bytes     length of the header, unsigned, little endian
    header      a JSON object in UTF-8, filled up with spaces so that the elements begin at a multiple of 64 bytes
    elements    compact row-major, little endian

    {"array": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {"arraybridge": "1"}}

"arraybridge" in `__metadata__` is the version of this format. A dtype that safetensors lacks is named there as "dtype",
and the tensor has a dtype that holds its bits: "complex128" in F64 and "complex32" in F16, each with an additional
dimension of 2, further kinds of float8 in U8, "datetime64[unit]" and "timedelta64[unit]" in I64, structured dtypes in
U8 with an additional dimension for the bytes of an element and NumPy's .npy description as "struct:<JSON>". Any reader
of safetensors accepts such bytes, and `from_bytes` accepts safetensors of one tensor from other writers.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from arraybridge import _core, autograph, planner
from arraybridge.conversion.source import Source, on_host, plain
from arraybridge.conversion.ways import MEMORY
from arraybridge.errors import InvalidRequest, UnsupportedDtype
from arraybridge.planner import CODES, OPAQUE_PREFIXES

VERSION: Final = "1"
HEADER_BYTES_MAX: Final = 1 << 20
RANK_MAX: Final = 64
_NBYTES_MAX: Final = 2**62
_LENGTH_BYTES: Final = 8
_ALIGNMENT: Final = 64
_NAME, _METADATA = "array", "__metadata__"
WORDS: Final = {
    "bool": "BOOL", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "uint8": "U8", "uint16": "U16",
    "uint32": "U32", "uint64": "U64", "float16": "F16", "float32": "F32", "float64": "F64", "bfloat16": "BF16",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip
_NAMES: Final = {word: name for name, word in WORDS.items()}
# The dtype that holds the bits of one that safetensors lacks, and the additional dimensions.
HELD: Final = {
    "complex32": ("F16", (2,)),
    "complex128": ("F64", (2,)),
    **{name: ("U8", ()) for name in CODES if name.startswith("float8") and name not in WORDS},
}


class _Header(NamedTuple):
    """The content of a header, checked: the form of the elements, and their size in bytes."""

    dtype: str
    code: planner.Code
    shape: tuple[int, ...]
    nbytes: int


def bytes_of(source: Source) -> bytes:
    """to_bytes of an array whose description is known."""
    chosen = planner.plan(source.description, MEMORY, device="cpu")
    view = source.shown() if chosen.zero_copy else on_host(plain(source), chosen, MEMORY)
    head = _written(view.dtype_name, view.shape, view.nbytes)
    # The buffer protocol lacks bfloat16. One copy: `join` reads the memory that the View keeps.
    values = memoryview((ctypes.c_char * view.nbytes).from_address(view.address)) if view.nbytes else b""
    return b"".join((head, values))


def view_of(data: Any) -> _core.View:
    """The array in the bytes, as a View of them.

    Raises:
        InvalidRequest: the bytes are not in this format.
    """
    try:
        memory = memoryview(data).cast("B")
    except (TypeError, BufferError, ValueError) as error:
        raise InvalidRequest(f"from_bytes needs contiguous bytes, not {type(data).__name__}: {error}") from error
    start, text = _header_in(memory)
    found = _read(text)
    if memory.nbytes - start != found.nbytes:
        rest = memory.nbytes - start
        raise _refused(f"{rest} bytes follow the header, and shape {list(found.shape)} of {_short(found.dtype)} has {found.nbytes}")
    bits = found.code[1]
    typestr = "<c16" if bits == 128 else f"<u{bits // 8}"
    interface = {"version": 3, "shape": found.shape, "typestr": typestr, "data": memory[start:]}
    return _core.wrap_array_interface(interface, memory).named(found.dtype, found.code)


def _written(dtype: str, shape: tuple[int, ...], nbytes: int) -> bytes:
    """The header of an array in its traveling form, after its length."""
    metadata = {"arraybridge": VERSION} if dtype in WORDS else {"arraybridge": VERSION, "dtype": dtype}
    word, more = (WORDS[dtype], ()) if dtype in WORDS else _held(dtype)
    tensor = {"dtype": word, "shape": [*shape, *more], "data_offsets": [0, nbytes]}
    text = json.dumps({_NAME: tensor, _METADATA: metadata}, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    if len(text) > HEADER_BYTES_MAX:
        raise InvalidRequest(f"a header of {len(text)} bytes exceeds {HEADER_BYTES_MAX}: use fewer fields, or shorter names")
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def _held(dtype: str) -> tuple[str, tuple[int, ...]]:
    """Raises:
    UnsupportedDtype: the dtype is unknown.
    """
    if dtype.startswith(OPAQUE_PREFIXES):
        return ("U8" if dtype.startswith("struct:") else "I64"), ()
    if dtype not in HELD:
        raise UnsupportedDtype("array", "bytes", "serialize", f"unknown dtype {dtype[:64]!r}")
    return HELD[dtype]


def _header_in(memory: memoryview) -> tuple[int, bytes]:
    """The position of the elements, and the header's text."""
    if memory.nbytes < _LENGTH_BYTES:
        raise _refused(f"{memory.nbytes} bytes, less than the {_LENGTH_BYTES} of the header's length")
    length = int.from_bytes(memory[:_LENGTH_BYTES], "little")
    if length > HEADER_BYTES_MAX:
        raise _refused(f"its first {_LENGTH_BYTES} bytes announce a header of {length} bytes; the limit is {HEADER_BYTES_MAX}")
    start = _LENGTH_BYTES + length
    if start > memory.nbytes:
        raise _refused(f"a header of {length} bytes in {memory.nbytes} bytes: they are truncated")
    return start, bytes(memory[_LENGTH_BYTES:start])


def _read(text: bytes) -> _Header:
    """Reads and checks a header, which is untrusted."""
    try:
        header = json.loads(text.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _refused(f"the header is not JSON: {str(error)[:80]}") from error
    if not isinstance(header, dict):
        raise _refused("the header is not a JSON object")
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(each, str) for each in metadata.values()):
        raise _refused(f"{_METADATA} is not an object of strings")
    version = metadata.get("arraybridge")
    if version not in (None, VERSION):
        raise _refused(f"their format has version {version[:20]!r}, this package reads {VERSION!r}: install a newer package")
    if len(header) != 1:
        raise _refused(f"they contain {len(header)} arrays, and from_bytes reads one")
    [tensor] = header.values()
    if not isinstance(tensor, dict) or set(tensor) != {"dtype", "shape", "data_offsets"}:
        raise _refused("an array must be described by dtype, shape and data_offsets only")
    shape = _shape_in(tensor["shape"])
    word = tensor["dtype"]
    if not isinstance(word, str) or word not in _NAMES:
        raise _refused(f"unknown dtype {str(word)[:40]!r}; supported are {sorted(_NAMES)}")
    nbytes = math.prod(shape) * CODES[_NAMES[word]][1] // 8
    if nbytes > _NBYTES_MAX or tensor["data_offsets"] != [0, nbytes]:
        raise _refused(f"data_offsets {str(tensor['data_offsets'])[:60]} for {list(shape)} of {word}, which is [0, {nbytes}]")
    dtype, shape = _held_in(metadata.get("dtype") if version else None, word, shape)
    if len(shape) > RANK_MAX:
        raise _refused(f"an array of {len(shape)} dimensions, the limit is {RANK_MAX}")
    code = CODES.get(dtype, CODES[_NAMES[word]])
    return _Header(dtype, code, shape, nbytes)


def _held_in(dtype: str | None, word: str, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The dtype that the tensor holds, and the shape of that array."""
    if dtype is None:
        return _NAMES[word], shape
    if dtype not in HELD and not dtype.startswith(OPAQUE_PREFIXES):
        raise _refused(f"unknown dtype {dtype[:64]!r}")
    held, more = _held(dtype)
    if word != held or shape[len(shape) - len(more) :] != more:
        raise _refused(f"{_short(dtype)} needs {held} with a shape that ends with {list(more)}, not {word} with {list(shape)}")
    return dtype, shape[: len(shape) - len(more)]


def _shape_in(sizes: object) -> tuple[int, ...]:
    if not isinstance(sizes, list) or len(sizes) > RANK_MAX + 1:  # a tensor that holds another dtype may have one more
        raise _refused(f"a shape must be a list of at most {RANK_MAX + 1} sizes, not {str(sizes)[:60]}")
    if any(type(size) is not int or not 0 <= size <= _NBYTES_MAX for size in sizes):
        raise _refused(f"a shape must be a list of sizes, not {str(sizes)[:60]}")
    return tuple(sizes)


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key[:40]!r} twice")
        found[key] = value
    return found


def _short(dtype: str) -> str:
    return "a structured dtype" if dtype.startswith("struct:") else dtype


def _refused(why: str) -> InvalidRequest:
    return InvalidRequest(f"not the bytes of one array, as to_bytes makes them, or safetensors: {why}")


autograph.mark_module(__name__)
