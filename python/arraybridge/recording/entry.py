# SPDX-License-Identifier: Apache-2.0
"""An Entry is one recorded message: a safetensors file of its arrays, whose header has the structure of its tree, the sender's
metadata, and what the broker knew of it.

An entry that is read is input from outside: each size is checked against the bytes that are there, before memory is
allocated. Its arrays are views of the entry's bytes, which `sources` copies once, into broker memory.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from arraybridge import _core, adapters
from arraybridge.adapters import ensure_module, numpy as numpy_adapter
from arraybridge.broker import bundled_tree
from arraybridge.broker.placing import bytes_of
from arraybridge.conversion import tree
from arraybridge.conversion.source import Source
from arraybridge.errors import BrokerError, InvalidRequest
from arraybridge.files.safetensors import DTYPES, LENGTH_BYTES, METADATA
from arraybridge.planner import CODES, OPAQUE_PREFIXES, Code, Description

_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}
_BYTES: Final = "U8"  # an array whose dtype safetensors lacks; the key "dtypes" has its own
_HEADER_BYTES_MAX: Final = 16 << 20  # of which a structure has 8 MiB at most
_STRUCTURE_BYTES_MAX: Final = 8 << 20
_RANK_MAX: Final = 64
_ARRAYS_MAX: Final = 1 << 20
_DTYPE_CHARACTERS_MAX: Final = 4096
_COUNT_MAX: Final = 2**63 - 1
_REASON: Final = "no_foreign_memory: a recording: 1 copy, from the file's bytes"


class Recorded(NamedTuple):
    """The facts that the broker knew of a message when it was recorded.

    `sent_ns` is in nanoseconds of the recording host's CLOCK_BOOTTIME.
    """

    sequence: int
    stream: int
    sent_ns: int
    process_id: int
    client: str


class _Part(NamedTuple):
    """One array of an entry: its dtype, DLPack's code and shape as it travels, and its bytes."""

    dtype: str
    code: Code
    shape: tuple[int, ...]
    values: memoryview


class Entry(NamedTuple):
    """A message that was read from a recording, and checked."""

    parts: list[_Part]
    structure: bytes
    metadata: bytes
    recorded: Recorded

    def sources(self) -> list[Source]:
        """The arrays as a message's sources: each is copied once, from the entry into broker memory."""
        return [Source(part, adapters.protocols(), _described(part), "share") for part in self.parts]


def encoded(info: _core.ShareInfo, views: Sequence[_core.View]) -> bytes:
    """A received message as a safetensors file.

    Raises:
        InvalidRequest: it is a malformed bundle, or no text. MemoryConversionError: memory of a GPU cannot be read.
    """
    structure, views = bundled_tree.unpacked(info.structure, views)
    try:
        text_of_structure = structure.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the structure of a message is no UTF-8: {error.reason} at byte {error.start}") from error
    sequence, stream, sent_ns, process_id, client = info.sent or (0, 0, 0, 0, "")
    header: dict[str, Any] = {}
    lacking: dict[str, tuple[str, Code, tuple[int, ...]]] = {}
    values, end = list[Any](), 0
    for name, view in _named(structure, views):
        bits = bytes_of(view)
        known = _NAMES.get(view.dtype_name) if view.dtype_code == CODES.get(view.dtype_name) else None
        if known is None:
            lacking[name] = view.dtype_name, view.dtype_code, view.shape
        shape = [bits.nbytes] if known is None else view.shape
        header[name] = {"dtype": known or _BYTES, "shape": shape, "data_offsets": [end, end + bits.nbytes]}
        values.append(bits)
        end += bits.nbytes
    header[METADATA] = {
        "arraybridge": "1", "structure": text_of_structure, "metadata": base64.b64encode(info.metadata).decode(),
        "dtypes": json.dumps(lacking), "sequence": str(sequence), "stream": str(stream), "sent_ns": str(sent_ns),
        "process_id": str(process_id), "client": client,
    }  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(LENGTH_BYTES + len(text)) % 8)
    return b"".join([len(text).to_bytes(LENGTH_BYTES, "little"), text, *values])


def decoded(data: memoryview) -> Entry:
    """The message of an entry.

    Raises:
        InvalidRequest: it is malformed; the text names the defect.
    """
    header, values = _header_of(data)
    texts = header.pop(METADATA)
    try:
        parts = list(_parts_of(header, json.loads(texts["dtypes"]), values))
        structure = texts["structure"].encode()
        numbers = {name: int(texts[name]) for name in ("sequence", "stream", "sent_ns", "process_id")}
        recorded = Recorded(**numbers, client=str(texts["client"]))
        metadata = base64.b64decode(texts["metadata"], validate=True)
    except BrokerError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidRequest(f"its header is malformed: {type(error).__name__}: {error}") from error
    _check_tree(structure, parts)
    return Entry(parts, structure, metadata, recorded)


def _header_of(data: memoryview) -> tuple[dict[str, Any], memoryview]:
    """The header, which is one of a recording, and the bytes after it."""
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    if len(data) < LENGTH_BYTES or length > min(_HEADER_BYTES_MAX, len(data) - LENGTH_BYTES):
        raise InvalidRequest(f"its header would have {length} bytes of {len(data)}")
    try:
        header = json.loads(bytes(data[LENGTH_BYTES : LENGTH_BYTES + length]))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"its header is no JSON: {error}") from error
    texts = header.get(METADATA) if isinstance(header, dict) else None
    if not isinstance(texts, dict) or texts.get("arraybridge") != "1" or len(header) > _ARRAYS_MAX:
        raise InvalidRequest("its header is not one of arraybridge's recordings, version 1")
    return header, data[LENGTH_BYTES + length :]


def _named(structure: bytes, views: Sequence[_core.View]) -> Iterator[tuple[str, _core.View]]:
    """The arrays by their names in the file: "array" for one that is no tree, else their numbers in the structure."""
    if not structure and len(views) == 1:
        yield "array", views[0]
        return
    for number, view in enumerate(views):
        yield str(number), view


def _parts_of(header: Mapping[str, Any], lacking: Mapping[str, Any], values: memoryview) -> Iterator[_Part]:
    """The arrays in the order of their bytes, which have neither holes nor overlaps."""
    end = 0
    for name, described in header.items():
        dtype, shape, (begin, until) = described["dtype"], described["shape"], described["data_offsets"]
        if begin != end or until > len(values) or not isinstance(until, int) or until < begin:
            raise InvalidRequest(f"the bytes of array {name[:64]!r} are not where the array before it ends, or end after the entry")
        if dtype == _BYTES and name in lacking:
            dtype, code, shape = lacking[name]
            code = _checked_code(dtype, code)
        else:
            dtype = DTYPES[dtype]
            code = CODES[dtype]
        yield _Part(dtype, code, _checked_shape(name, shape, code, until - begin), values[begin:until])
        end = until
    if end != len(values):
        raise InvalidRequest(f"{len(values) - end} bytes follow its last array")


def _checked_code(dtype: Any, code: Any) -> Code:
    if not isinstance(dtype, str) or len(dtype) > _DTYPE_CHARACTERS_MAX:
        raise InvalidRequest("the dtype of an array is not a text of reasonable length")
    made = tuple(code)
    if len(made) != 3 or not all(type(each) is int for each in made):
        raise InvalidRequest("the dtype of an array has no code of DLPack")
    known = dtype in CODES and made == CODES[dtype]
    if not known and not (dtype.startswith(OPAQUE_PREFIXES) and made in ((1, 8, 1), (0, 64, 1))):
        raise InvalidRequest(f"an array has the unknown dtype {dtype[:64]!r}")
    return made


def _checked_shape(name: str, shape: Any, code: Code, nbytes: int) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > _RANK_MAX or not all(type(size) is int and size >= 0 for size in shape):
        raise InvalidRequest(f"the shape of array {name[:64]!r} is not a list of at most {_RANK_MAX} sizes")
    if math.prod(max(size, 1) for size in shape) > _COUNT_MAX or math.prod(shape) * code[1] * code[2] != nbytes * 8:
        raise InvalidRequest(f"array {name[:64]!r}, {code[1]} bits x {shape}, does not have {nbytes} bytes")
    return tuple(shape)


def _check_tree(structure: bytes, parts: Sequence[_Part]) -> None:
    """Raises:
    InvalidRequest: the structure violates the grammar of trees, or names other arrays than there are.
    """
    if not parts or len(structure) > _STRUCTURE_BYTES_MAX:
        raise InvalidRequest(f"it has {len(parts)} arrays and {len(structure)} bytes of structure")
    if structure == _core.BUNDLE_STRUCTURE:
        return  # a bundle; its reader checks its manifest
    tree.unflatten(structure, parts, types=[])


def _described(part: _Part) -> Description:
    return Description(
        "recording", part.dtype, part.code, part.shape, None, 0, True, obstacles=(_REASON,), fill=_filler(part.values)
    )  # fmt: skip


def _filler(values: memoryview) -> Callable[[Any], None]:
    def fill(target: _core.View) -> None:
        destination = numpy_adapter.view(target.as_bytes()).reshape(-1)
        destination[...] = ensure_module("numpy").frombuffer(values, "u1")

    return fill
