# SPDX-License-Identifier: Apache-2.0
"""The safetensors format: 8 bytes, the length of a header of JSON, then the arrays' bytes, compact and little-endian.

Source: https://huggingface.co/docs/safetensors, "Format".
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from arraybridge.broker.bundle import BundleSpec, BundleWriter
from arraybridge.errors import InvalidRequest, UnsupportedDtype, printable
from arraybridge.files.reading import read
from arraybridge.files.stored import Stored, Told
from arraybridge.planner import CODES, PACKED

LENGTH_BYTES: Final = 8
_HEADER_BYTES_MAX: Final = 100_000_000  # as the safetensors package
METADATA: Final = "__metadata__"
DTYPES: Final[Mapping[str, str]] = {
    "BOOL": "bool",
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": "bfloat16",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "F6_E2M3": "float6_e2m3fn",
    "F6_E3M2": "float6_e3m2fn",
    "F4": "float4_e2m1fn",
}


class _Entry(NamedTuple):
    spec: BundleSpec
    offset: int  # in the file
    nbytes: int


class SafetensorsFile(Stored):
    """One file; a model of several has an index, which `shards_of` reads."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        try:
            self._header = self._read_header()
            self._metadata, self._entries = self._parsed()
        except BaseException:
            self.close()
            raise

    def contents(self) -> Mapping[str, Any]:
        return {name: entry.spec for name, entry in self._entries.items()}

    def metadata(self) -> Mapping[str, str]:
        return self._metadata

    def header(self) -> bytes:
        return self._header

    def read_into(self, writer: BundleWriter, told: Told) -> None:
        destinations = writer.bytes_of(self._entries)
        read(self.fd, self.path, ((self._entries[name].offset, destination) for name, destination in destinations.items()), told)

    def _read_header(self) -> bytes:
        length = int.from_bytes(os.pread(self.fd, LENGTH_BYTES, 0), "little")
        if self.size < LENGTH_BYTES or length > min(_HEADER_BYTES_MAX, self.size - LENGTH_BYTES):
            raise self.malformed(f"its header would have {length} bytes of the file's {self.size}: it is cut off, or no safetensors file")
        header = os.pread(self.fd, length, LENGTH_BYTES)
        if len(header) < length:
            raise self.malformed("it was cut off while it was read")
        return header

    def _parsed(self) -> tuple[Mapping[str, str], dict[str, _Entry]]:
        try:
            header = json.loads(self._header, object_pairs_hook=_unique)
        except (ValueError, RecursionError) as error:
            raise self.malformed(f"its header is invalid: {error}") from error
        if not isinstance(header, dict):
            raise self.malformed("its header is no JSON object")
        metadata = header.pop(METADATA, None)
        metadata = {} if metadata is None else metadata
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise self.malformed(f"{METADATA} must be an object of strings")
        entries = {name: self._entry(name, described) for name, described in header.items()}
        # The format permits neither holes nor overlaps, in which other data could hide.
        end = LENGTH_BYTES + len(self._header)
        for name, entry in sorted(entries.items(), key=lambda each: each[1][1:]):
            if entry.offset != end:
                raise self.malformed(f"array {name!r} begins {'before' if entry.offset < end else 'after'} the end of the one before it")
            end += entry.nbytes
        if end != self.size:
            raise self.malformed(f"{self.size - end} bytes follow its last array")
        return metadata, entries

    def _entry(self, name: str, described: Any) -> _Entry:
        try:
            dtype, shape, (begin, end) = described["dtype"], described["shape"], described["data_offsets"]
        except (TypeError, KeyError, ValueError) as error:
            raise self.malformed(f"array {name!r} must have dtype, shape and two data_offsets") from error
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise UnsupportedDtype("safetensors", "bundle", "load", f"{self.path}: array {name!r} has dtype {printable(str(dtype))}")
        if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 2**63 for size in [*shape, begin, end]):
            raise self.malformed(f"shape and data_offsets of array {name!r} must be whole numbers, not negative")
        start = LENGTH_BYTES + len(self._header)
        nbytes = self.bytes_of(name, shape, (CODES.get(DTYPES[dtype]) or PACKED[DTYPES[dtype]])[1])
        if end - begin != nbytes:
            raise self.malformed(f"array {name!r}, {dtype}{shape}, needs {nbytes} bytes and has {end - begin}")
        if end > self.size - start:
            raise self.malformed(f"array {name!r} ends {end - (self.size - start)} bytes after the file: it is cut off")
        return _Entry(BundleSpec(tuple(shape), DTYPES[dtype]), start + begin, nbytes)


def shards_of(index: str) -> dict[str, set[str]]:
    """The files of a model, from its index (model.safetensors.index.json), which has the same folder, and the names of the
    arrays that each has.

    Raises:
        InvalidRequest: it is no such index.
    """
    with Stored(index) as file:
        text = os.pread(file.fd, _HEADER_BYTES_MAX + 1, 0)
    names: dict[str, set[str]] = {}
    try:
        content: Any = json.loads(text) if len(text) <= _HEADER_BYTES_MAX else None
        for array, name in content["weight_map"].items():
            names.setdefault(str(name), set()).add(array)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise InvalidRequest(f"{index} is no index of safetensors files: it has no weight_map") from error
    if not names:
        raise InvalidRequest(f"{index} is no index of safetensors files: its weight_map is empty")
    for name in names:
        if name != os.path.basename(name) or not name.strip(".") or "\0" in name:
            raise InvalidRequest(f"{index} names {name!r}, which is no file of its folder")
    return {os.path.join(os.path.dirname(index), name): names[name] for name in sorted(names)}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found
