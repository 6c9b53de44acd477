# SPDX-License-Identifier: Apache-2.0
"""Bits of Arrow: eight elements a byte, the first in the lowest bit."""

from __future__ import annotations

from typing import Any, Final

from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.tables.structures import Chunk

_PIECE: Final = 1 << 20  # bytes that are counted at a time


def bytes_for(bits: int) -> int:
    """The bytes that hold so many bits."""
    return -(-bits // 8)


def of_chunk(chunk: Chunk, index: int, start: int, length: int) -> Any:
    """The bits `start` to `start + length` of a buffer, from the lowest bit of the first byte on; a copy if they are not so
    in the buffer. Bits beyond the length are undefined.
    """
    shift = start % 8
    source = chunk.buffer(index, "uint8", start // 8, bytes_for(shift + length))
    if not shift:
        return source
    found = source >> shift
    found[:-1] |= source[1:] << (8 - shift)
    return found[: bytes_for(length)]


def put(target: Any, at: int, source: Any, length: int) -> None:
    """Writes bits into bytes of zeros, from bit `at` on. `source` as from `of_chunk`."""
    if not length:
        return
    values = numpy_adapter.module().array(source[: bytes_for(length)])
    if length % 8:
        values[-1] &= (1 << length % 8) - 1
    first, shift = divmod(at, 8)
    target[first : first + len(values)] |= values << shift
    over = values >> (8 - shift) if shift else values[:0]
    room = target[first + 1 : first + 1 + len(over)]
    room |= over[: len(room)]  # the last bits beyond the target are zeros


def put_ones(target: Any, at: int, length: int) -> None:
    """Sets bits of bytes of zeros, from bit `at` on."""
    put(target, at, numpy_adapter.module().full(bytes_for(length), 255, "uint8"), length)


def count(source: Any, length: int) -> int:
    """The number of ones among the first `length` bits."""
    np = numpy_adapter.module()
    whole, rest = divmod(length, 8)
    pieces = range(0, whole, _PIECE)
    found = sum(int(_ones()[source[at : min(at + _PIECE, whole)]].sum(dtype=np.int64)) for at in pieces)
    return found + (int(source[whole]) & ((1 << rest) - 1)).bit_count() if rest else found


def unpacked(source: Any, length: int) -> Any:
    """The first `length` bits as an ndarray of bool."""
    np = numpy_adapter.module()
    return np.unpackbits(np.asarray(source, np.uint8), count=length, bitorder="little").view(bool)


def _ones() -> Any:
    np = numpy_adapter.module()
    return np.array([value.bit_count() for value in range(256)], np.uint8)
