# SPDX-License-Identifier: Apache-2.0
"""Dictionaries of chunks: equal values of several dictionaries get one number, so that the joined one has each value once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.tables import bits
from arraybridge.tables.formats import Form, form_of
from arraybridge.tables.leaves import array_of
from arraybridge.tables.nodes import Node

if TYPE_CHECKING:
    from arraybridge.tables.joining import Piece
    from arraybridge.tables.structures import Chunk


def same(one: Chunk, other: Chunk) -> bool:
    """True if two chunks are one array in memory. Their children then are, too."""
    count = int(one.array.n_buffers)
    alike = (one.length, one.offset, count) == (other.length, other.offset, int(other.array.n_buffers))
    return alike and all(one.address(index) == other.address(index) for index in range(count)) and count > 1


def rows(node: Node, leaves: Sequence[Any]) -> list[Hashable]:
    """A key of each element, equal for equal values. Nested values are told apart by their place alone."""
    form = form_of(node.format)
    assert form is not None
    buffers = [None if each is None else array_of(leaves[each]) for each in node.buffers]
    found = _READERS.get(form.kind, _places)(node, form, buffers)
    if form.validity and buffers[0] is not None:
        valid = bits.unpacked(buffers[0], node.length).tolist()
        found = [each if good else None for each, good in zip(found, valid, strict=True)]
    return found


def united(keys: Sequence[Hashable], lengths: Sequence[int]) -> tuple[list[int], list[Any]]:
    """The first element of each key, and for the dictionary of each chunk the new number of each of its elements."""
    np = numpy_adapter.module()
    numbers: dict[Hashable, int] = {}
    order: list[int] = []
    new = []
    for place, key in enumerate(keys):
        if key not in numbers:
            numbers[key] = len(order)
            order.append(place)
        new.append(numbers[key])
    places, at = [], 0
    for length in lengths:
        places.append(np.array(new[at : at + length], np.int64))
        at += length
    return order, places


def runs(order: Sequence[int], found: Sequence[Piece]) -> Iterator[tuple[int, int, int]]:
    """The elements `order` of pieces one after another, as the number of a piece, a start and a length."""
    number, before = 0, 0
    run: tuple[int, int, int] | None = None
    for place in order:
        while place - before >= found[number].length:
            before += found[number].length
            number += 1
        start = found[number].start + place - before
        if run is not None and run[0] == number and run[1] + run[2] == start:
            run = number, run[1], run[2] + 1
            continue
        if run is not None:
            yield run
        run = number, start, 1
    if run is not None:
        yield run


def renumbered(indices: Any, places: Any) -> Any:
    """Indices into the joined dictionary. Nulls may have any index."""
    np = numpy_adapter.module()
    return places[np.clip(indices, 0, len(places) - 1)] if len(places) else np.zeros(len(indices), np.int64)


def _places(node: Node, form: Form, buffers: Sequence[Any]) -> list[Hashable]:
    return list(range(node.length))


def _texts(node: Node, form: Form, buffers: Sequence[Any]) -> list[Hashable]:
    text, starts = bytes(buffers[2]), buffers[1].tolist()
    return [text[start:end] for start, end in zip(starts, starts[1:], strict=False)]


def _numbers(node: Node, form: Form, buffers: Sequence[Any]) -> list[Hashable]:
    data, width = buffers[1].tobytes(), form.width
    return [data[at * width : (at + 1) * width] for at in range(node.length)]


def _flags(node: Node, form: Form, buffers: Sequence[Any]) -> list[Hashable]:
    return list(bits.unpacked(buffers[1], node.length).tolist())


def _views(node: Node, form: Form, buffers: Sequence[Any]) -> list[Hashable]:
    return [_viewed(row, buffers) for row in buffers[1].reshape(-1, 16)]


def _viewed(row: Any, buffers: Sequence[Any]) -> bytes:
    length, _, number, offset = row.view("int32").tolist()
    if length <= 12:
        return bytes(row[4 : 4 + length])
    return bytes(buffers[2 + number][offset : offset + length])


_READERS: Final[Mapping[str, Callable[[Node, Form, Sequence[Any]], list[Hashable]]]] = {
    "text": _texts,
    "fixed": _numbers,
    "bits": _flags,
    "view": _views,
}
