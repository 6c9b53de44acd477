# SPDX-License-Identifier: Apache-2.0
"""Joins the chunks of a table, and takes its arrays apart into buffers, which are the leaves of a tree.

A buffer is the producer's own memory where one chunk begins at its first element. Otherwise it is written when the table is
put, by the one copy into broker memory: chunks one after another, offsets and bits moved. So nothing is copied twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.errors import InvalidRequest, UnsupportedDtype
from arraybridge.tables import bits, dictionaries
from arraybridge.tables.formats import Form, form_of
from arraybridge.tables.leaves import Written
from arraybridge.tables.nodes import DEPTH_MAX, Node
from arraybridge.tables.structures import Chunk, Field

_JOINED: Final = "layout: chunks are joined"
_MOVED: Final = "layout: a slice, whose offsets or bits are moved"


class Piece(NamedTuple):
    """Elements of a chunk. `start` counts from the first element of its buffers."""

    chunk: Chunk
    start: int
    length: int

    @classmethod
    def whole(cls, chunk: Chunk) -> Piece:
        """All elements of a chunk."""
        return cls(chunk, chunk.offset, chunk.length)

    def child(self, index: int, start: int, length: int) -> Piece:
        """Elements of a child, counted from the child's own offset."""
        child = self.chunk.child(index)
        return Piece(child, child.offset + start, length)

    def values(self, index: int, dtype: str, width: int = 1, more: int = 0) -> Any:
        """Its elements in a buffer, of `width` numbers each, and `more` elements after them."""
        return self.chunk.buffer(index, dtype, self.start * width, (self.length + more) * width)


class Joiner:
    """Makes the Node of a table, and collects its leaves: ndarrays and Written."""

    def __init__(self) -> None:
        self.leaves: list[Any] = []
        self._steps: list[str] = []

    def joined(self, field: Field, pieces: Sequence[Piece]) -> Node:
        """The node of one array that has the elements of all pieces.

        Raises:
            UnsupportedDtype: a type that Arrow's C data interface of version 1.5 does not have. InvalidRequest: types that
                are nested too deep, or chunks that no array can hold together.
        """
        if len(self._steps) > DEPTH_MAX:
            raise InvalidRequest(f"types of a table may be nested {DEPTH_MAX} deep: put the inner columns as tables of their own")
        form = form_of(field.format)
        if form is None:
            what = f"{self._place()}Arrow's type {field.format!r} is unknown: cast the column to another type"
            raise UnsupportedDtype("table", "share", "hand_over", what)
        self._steps.append(field.name)
        validity, nulls = self._validity(form, pieces)
        buffers, children = _MAKERS[form.kind](self, form, field, pieces)
        values = None
        if field.dictionary is not None:
            buffers, values = self._dictionary(form, field, field.dictionary, pieces)
        self._steps.pop()
        length = sum(piece.length for piece in pieces)
        numbers = ([validity] if form.validity else []) + buffers
        return Node(field.format, field.name, field.metadata, field.flags, length, nulls, tuple(numbers), tuple(children), values)

    def refused(self, reason: str) -> InvalidRequest:
        """The error about the present column."""
        return InvalidRequest(f"{self._place()}{reason}")

    def leaf(self, dtype: str, parts: Sequence[Any], change: Callable[[Any, int], Any] | None = None) -> int:
        """The number of a leaf that has these arrays one after another; `change(part, index)` of each, if it is given."""
        if len(parts) == 1 and change is None:
            self.leaves.append(parts[0])
        elif not parts:
            self.leaves.append(numpy_adapter.module().zeros(0, dtype))
        else:

            def write(target: Any) -> None:
                at = 0
                for index, part in enumerate(parts):
                    target[at : at + len(part)] = part if change is None else change(part, index)
                    at += len(part)

            reason = _JOINED if len(parts) != 1 else _MOVED
            self.leaves.append(Written(dtype, (sum(map(len, parts)),), write, reason))
        return len(self.leaves) - 1

    def offsets(self, dtype: str, pieces: Sequence[Piece], index: int = 1) -> tuple[int, list[tuple[int, int]]]:
        """A leaf of joined offsets, and the range of values of each piece."""
        parts = [piece.values(index, dtype, more=1) for piece in pieces]
        ranges = [(int(part[0]), int(part[-1])) for part in parts]
        total = sum(end - start for start, end in ranges)
        if total > int(numpy_adapter.module().iinfo(dtype).max):
            raise self.refused(
                f"its chunks have together {total} bytes or elements, more than 32-bit offsets reach: cast it to the large type"
            )
        if len(parts) == 1 and ranges[0][0] == 0:
            return self.leaf(dtype, parts), ranges
        bases = [0]
        for start, end in ranges:
            bases.append(bases[-1] + end - start)

        def write(target: Any) -> None:
            target[:1] = 0
            at = 1
            for part, (start, _), base in zip(parts, ranges, bases, strict=False):
                target[at : at + len(part) - 1] = part[1:] - (start - base)
                at += len(part) - 1

        self.leaves.append(Written(dtype, (1 + sum(len(part) - 1 for part in parts),), write, _JOINED if len(parts) > 1 else _MOVED))
        return len(self.leaves) - 1, ranges

    def bits(self, index: int, pieces: Sequence[Piece]) -> int:
        """A leaf of joined bits; a piece without the buffer has ones."""
        total = sum(piece.length for piece in pieces)
        if len(pieces) == 1 and pieces[0].start % 8 == 0:
            return self.leaf("uint8", [bits.of_chunk(pieces[0].chunk, index, pieces[0].start, total)])

        def write(target: Any) -> None:
            target[:] = 0
            at = 0
            for piece in pieces:
                if piece.chunk.address(index):
                    bits.put(target, at, bits.of_chunk(piece.chunk, index, piece.start, piece.length), piece.length)
                else:
                    bits.put_ones(target, at, piece.length)
                at += piece.length

        self.leaves.append(Written("uint8", (bits.bytes_for(total),), write, _JOINED if len(pieces) > 1 else _MOVED))
        return len(self.leaves) - 1

    def _validity(self, form: Form, pieces: Sequence[Piece]) -> tuple[int | None, int]:
        if form.kind == "null":
            return None, sum(piece.length for piece in pieces)
        nulls = sum(map(_nulls, pieces)) if form.validity else 0
        return (self.bits(0, pieces) if nulls else None), nulls

    def _dictionary(self, form: Form, field: Field, values: Field, pieces: Sequence[Piece]) -> tuple[list[int | None], Node]:
        self.leaves.pop()  # the indices of the pieces, each into a dictionary of its own
        if not pieces:
            return [self.leaf(form.dtype, [])], self.joined(values, [])
        found = [Piece.whole(piece.chunk.dictionary()) for piece in pieces]
        indices = [piece.values(1, form.dtype) for piece in pieces]
        if all(dictionaries.same(found[0].chunk, other.chunk) for other in found[1:]):
            return [self.leaf(form.dtype, indices)], self.joined(values, found[:1])
        many = Joiner()
        rows = dictionaries.rows(many.joined(values, found), many.leaves)
        order, places = dictionaries.united(rows, [piece.length for piece in found])
        if len(order) > int(numpy_adapter.module().iinfo(form.dtype).max) + 1:
            what = f"the dictionaries of its chunks have together {len(order)} values, more than {form.dtype} can number"
            raise self.refused(f"{what}: cast its indices to int32")
        numbers = self.leaf(form.dtype, indices, lambda part, index: dictionaries.renumbered(part, places[index]))
        kept = [Piece(found[number].chunk, start, count) for number, start, count in dictionaries.runs(order, found)]
        return [numbers], self.joined(values, kept)

    def _place(self) -> str:
        return f"column {'.'.join(filter(None, self._steps))!r}: " if any(self._steps) else ""


def _nulls(piece: Piece) -> int:
    chunk = piece.chunk
    if chunk.nulls == 0 or not chunk.address(0):
        return 0
    if chunk.nulls > 0 and (piece.start, piece.length) == (chunk.offset, chunk.length):
        return chunk.nulls
    return piece.length - bits.count(bits.of_chunk(chunk, 0, piece.start, piece.length), piece.length)


Made = tuple[list[int | None], list[Node]]
_Make = Callable[[Joiner, Form, Field, Sequence[Piece]], Made]


def _null(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    return [], []


def _bits(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    return [joiner.bits(1, pieces)], []


def _fixed(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    width = form.width if form.dtype == "uint8" else 1
    return [joiner.leaf(form.dtype, [piece.values(1, form.dtype, width) for piece in pieces])], []


def _text(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    offsets, ranges = joiner.offsets(form.dtype, pieces)
    parts = [piece.chunk.buffer(2, "uint8", start, end - start) for piece, (start, end) in zip(pieces, ranges, strict=True)]
    return [offsets, joiner.leaf("uint8", parts)], []


def _view(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    """A view has the length, and either the bytes or four of them, the number of a buffer and an offset there: int32 all."""
    bases: list[list[int]] = []
    parts: list[Any] = []
    known: dict[tuple[int, int], int] = {}
    for piece in pieces:
        more = int(piece.chunk.array.n_buffers) - 3
        sizes = piece.chunk.buffer(2 + more, "int64", 0, more).tolist()
        places = []
        for number, size in enumerate(sizes):
            key = piece.chunk.address(2 + number), size
            if key not in known:
                known[key] = len(parts)
                parts.append(piece.chunk.buffer(2 + number, "uint8", 0, size))
            places.append(known[key])
        bases.append(places)

    def moved(part: Any, index: int) -> Any:
        np = numpy_adapter.module()
        found = part.reshape(-1, 16).copy().view(np.int32)
        places = np.array(bases[index] or [0], np.int32)
        outside = found[:, 0] > 12
        found[outside, 2] = places[np.clip(found[outside, 2], 0, len(places) - 1)]
        return found.view(np.uint8).reshape(-1)

    ordered = all(places == list(range(len(places))) for places in bases)
    views = joiner.leaf("uint8", [piece.values(1, "uint8", 16) for piece in pieces], None if ordered else moved)
    return [views, *(joiner.leaf("uint8", [part]) for part in parts)], []


def _list(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    offsets, ranges = joiner.offsets(form.dtype, pieces)
    inner = [piece.child(0, start, end - start) for piece, (start, end) in zip(pieces, ranges, strict=True)]
    return [offsets], [joiner.joined(field.children[0], inner)]


def _list_view(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    inner = [Piece.whole(piece.chunk.child(0)) for piece in pieces]
    bases = _bases(inner)
    if bases[-1] > int(numpy_adapter.module().iinfo(form.dtype).max):
        raise joiner.refused(f"its chunks have together {bases[-1]} elements, more than 32-bit offsets reach: cast it to the large type")
    parts = [piece.values(1, form.dtype) for piece in pieces]
    offsets = joiner.leaf(form.dtype, parts, None if len(parts) == 1 else lambda part, index: part + bases[index])
    sizes = joiner.leaf(form.dtype, [piece.values(2, form.dtype) for piece in pieces])
    return [offsets, sizes], [joiner.joined(field.children[0], inner)]


def _fixed_list(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    inner = [piece.child(0, piece.start * form.per_row, piece.length * form.per_row) for piece in pieces]
    return [], [joiner.joined(field.children[0], inner)]


def _struct(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    children = []
    for index, each in enumerate(field.children):
        children.append(joiner.joined(each, [piece.child(index, piece.start, piece.length) for piece in pieces]))
    return [], children


def _sparse_union(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    types = joiner.leaf("int8", [piece.values(0, "int8") for piece in pieces])
    return [types], _struct(joiner, form, field, pieces)[1]


def _dense_union(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    np = numpy_adapter.module()
    types = [piece.values(0, "int8") for piece in pieces]
    bases = np.zeros((len(pieces), 128), np.int64)
    children = []
    for index, (each, number) in enumerate(zip(field.children, form.ids, strict=True)):
        inner = [Piece.whole(piece.chunk.child(index)) for piece in pieces]
        bases[:, number] = _bases(inner)[:-1]
        children.append(joiner.joined(each, inner))
    parts = [piece.values(1, "int32") for piece in pieces]
    moved = None if len(parts) == 1 else lambda part, index: part + bases[index][types[index]]
    return [joiner.leaf("int8", types), joiner.leaf("int32", parts, moved)], children


def _run_ends(joiner: Joiner, form: Form, field: Field, pieces: Sequence[Piece]) -> Made:
    np = numpy_adapter.module()
    ends_form = form_of(field.children[0].format)
    assert ends_form is not None
    inner, ends, at = [], [], 0
    for piece in pieces:
        found = Piece.whole(piece.chunk.child(0)).values(1, ends_form.dtype)
        first = int(np.searchsorted(found, piece.start, "right"))
        last = int(np.searchsorted(found, piece.start + piece.length, "left")) + 1 if piece.length else first
        inner.append(piece.child(1, first, last - first))
        ends.append(np.minimum(found[first:last].astype(np.int64), piece.start + piece.length) - piece.start + at)
        at += piece.length
    if at > int(np.iinfo(ends_form.dtype).max):
        raise joiner.refused(f"it has {at} elements, more than run ends of {ends_form.dtype} can number: cast them to int64")
    runs = field.children[0]
    node = Node(
        runs.format, runs.name, runs.metadata, runs.flags, sum(map(len, ends)), 0,
        (None, joiner.leaf(ends_form.dtype, ends, lambda part, index: part)), (), None,
    )  # fmt: skip
    return [], [node, joiner.joined(field.children[1], inner)]


def _bases(pieces: Sequence[Piece]) -> list[int]:
    """The number of elements before each piece, and of all."""
    found = [0]
    for piece in pieces:
        found.append(found[-1] + piece.length)
    return found


_MAKERS: Final[Mapping[str, _Make]] = {
    "null": _null,
    "bits": _bits,
    "fixed": _fixed,
    "text": _text,
    "view": _view,
    "list": _list,
    "list_view": _list_view,
    "fixed_list": _fixed_list,
    "struct": _struct,
    "sparse_union": _sparse_union,
    "dense_union": _dense_union,
    "run_ends": _run_ends,
}
