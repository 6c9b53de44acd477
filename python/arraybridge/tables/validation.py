# SPDX-License-Identifier: Apache-2.0
"""Checks a table that another process described, before a library gets it: libraries trust lengths and offsets, and would
read other memory of this process.

`check` takes the same time for each column, whatever its length is: all sizes, and the first and last offsets. `check_full`
reads the buffers: each offset, index, and character.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.arrays import devices
from arraybridge.errors import InvalidRequest
from arraybridge.tables import bits
from arraybridge.tables.formats import TEXT, Form, form_of
from arraybridge.tables.nodes import Node

if TYPE_CHECKING:
    from arraybridge._core import View

_VIEWED_MAX: Final = 12  # bytes that a binary view has itself
_Views = Sequence["View"]


class Column:
    """An array of a table, beside its buffers, while it is checked."""

    def __init__(self, node: Node, views: _Views, path: str) -> None:
        self.node = node
        self.views = views
        self.path = path or "the table"
        form = form_of(node.format)
        if form is None:
            raise self.refused(f"its type {node.format[:64]!r} is unknown")
        self.form: Final[Form] = form
        if not all(each is None or 0 <= each < len(views) for each in node.buffers):
            raise self.refused("it names an array that the share lacks")
        self.buffers = [None if each is None else views[each] for each in node.buffers]

    def refused(self, reason: str) -> InvalidRequest:
        """The error about this column."""
        return InvalidRequest(f"the share's table is invalid: column {self.path[:200]!r}: {reason}: put the table again")

    def require(self, good: bool, reason: str) -> None:
        """Raises `refused(reason)` unless `good`."""
        if not good:
            raise self.refused(reason)

    def has(self, index: int, dtype: str, count: int, what: str) -> None:
        """Checks that a buffer has at least `count` elements."""
        view = self.buffers[index]
        if view is None:
            raise self.refused(f"it has no {what}")
        good = view.dtype_name == dtype and view.ndim == 1 and view.compact and view.device == devices.HOST
        self.require(good, f"its {what} are no {dtype} in host memory")
        self.require(view.size >= count, f"its {what} have {view.size} elements, and its length needs {count}")

    def numbers(self, index: int) -> Any:
        """A buffer as an ndarray. REQUIRES: `has` checked it."""
        view = self.buffers[index]
        assert view is not None
        return numpy_adapter.view(view)


def check(node: Node, views: _Views, path: str = "") -> None:
    """Checks the sizes of an array, of its children, and of its dictionary.

    Raises:
        InvalidRequest: a size or an offset is invalid; names the column.
    """
    column = Column(node, views, path)
    form = column.form
    most = len(node.buffers) if form.kind == "view" else form.buffers
    column.require(form.buffers <= len(node.buffers) <= most, f"it has {len(node.buffers)} buffers, not {form.buffers}")
    column.require(form.children in (-1, len(node.children)), f"it has {len(node.children)} children, not {form.children}")
    _check_nulls(column)
    if node.dictionary is not None:
        column.require(form.kind == "fixed" and node.format in "cCsSiIlL", "its indices are not integers")
        check(node.dictionary, views, f"{path}.dictionary")
        column.require(bool(node.dictionary.length) or node.nulls == node.length, "its dictionary is empty")
    _SIZES.get(form.kind, _nothing)(column)
    for child in node.children:
        check(child, views, f"{path}.{child.name}" if path else child.name)


def check_full(node: Node, views: _Views, path: str = "") -> None:
    """Checks the values of the buffers, too. REQUIRES: `check`.

    Raises:
        InvalidRequest: an offset, an index, a type id or the number of nulls is invalid, or text is not UTF-8.
    """
    column = Column(node, views, path)
    if column.form.validity and column.buffers[0] is not None:
        nulls = node.length - bits.count(column.numbers(0), node.length)
        column.require(nulls == node.nulls, f"it has {nulls} nulls, and states {node.nulls}")
    if node.dictionary is not None:
        _full_indices(column, node.dictionary.length)
        check_full(node.dictionary, views, f"{path}.dictionary")
    else:
        _VALUES.get(column.form.kind, _nothing)(column)
    for child in node.children:
        check_full(child, views, f"{path}.{child.name}" if path else child.name)


def _check_nulls(column: Column) -> None:
    node, form = column.node, column.form
    most = node.length if form.validity or form.kind == "null" else 0
    column.require(node.nulls <= most, "it has more nulls than elements")
    if form.validity and column.buffers[0] is not None:
        column.has(0, "uint8", bits.bytes_for(node.length), "validity")
    elif form.validity:
        column.require(not node.nulls, "it has nulls and no validity")


def _nothing(column: Column) -> None:
    pass


def _bits(column: Column) -> None:
    column.has(1, "uint8", bits.bytes_for(column.node.length), "bits")


def _fixed(column: Column) -> None:
    form = column.form
    column.has(1, form.dtype, column.node.length * (form.width if form.dtype == "uint8" else 1), "values")


def _text(column: Column) -> None:
    column.has(2, "uint8", 0, "bytes")
    view = column.buffers[2]
    _ends(column, view.size if view is not None else 0)


def _list(column: Column) -> None:
    _ends(column, column.node.children[0].length)


def _ends(column: Column, limit: int) -> None:
    """The first and the last offset."""
    column.has(1, column.form.dtype, column.node.length + 1, "offsets")
    offsets = column.numbers(1)
    first, last = int(offsets[0]), int(offsets[column.node.length])
    column.require(0 <= first <= last <= limit, f"its offsets go from {first} to {last}, and there are {limit} elements")


def _view(column: Column) -> None:
    column.has(1, "uint8", 16 * column.node.length, "views")
    for index in range(2, len(column.buffers)):
        column.has(index, "uint8", 0, "bytes")


def _list_view(column: Column) -> None:
    for index, what in ((1, "offsets"), (2, "sizes")):
        column.has(index, column.form.dtype, column.node.length, what)


def _fixed_list(column: Column) -> None:
    needed, there = column.node.length * column.form.per_row, column.node.children[0].length
    column.require(there == needed, f"its lists have together {there} elements, and its length needs {needed}")


def _struct(column: Column) -> None:
    for child in column.node.children:
        column.require(child.length == column.node.length, f"{child.name[:64]!r} has {child.length} elements, not {column.node.length}")


def _sparse_union(column: Column) -> None:
    column.has(0, "int8", column.node.length, "type ids")
    _struct(column)


def _dense_union(column: Column) -> None:
    column.has(0, "int8", column.node.length, "type ids")
    column.has(1, "int32", column.node.length, "offsets")


def _run_ends(column: Column) -> None:
    ends = _ends_of(column)
    column.require(not ends.node.nulls and ends.node.format in ("s", "i", "l"), "its run ends are not integers without nulls")
    ends.has(1, ends.form.dtype, ends.node.length, "run ends")
    column.require(column.node.children[1].length >= ends.node.length, "it has fewer values than runs")
    last = int(ends.numbers(1)[ends.node.length - 1]) if ends.node.length else 0
    column.require(last >= column.node.length, f"its runs end at {last}, and it has {column.node.length} elements")


def _ends_of(column: Column) -> Column:
    found = Column(column.node.children[0], column.views, f"{column.path}.run_ends")
    found.require(found.form.kind == "fixed" and len(found.buffers) == 2, "it has no run ends")
    return found


def _full_offsets(column: Column, limit: int) -> Any:
    offsets = column.numbers(1)[: column.node.length + 1]
    column.require(not (offsets[1:] < offsets[:-1]).any(), "its offsets decrease")
    column.require(0 <= int(offsets[0]) and int(offsets[-1]) <= limit, "its offsets reach beyond the values")
    return offsets


def _full_text(column: Column) -> None:
    data = column.numbers(2)
    offsets = _full_offsets(column, data.size)
    if column.node.format not in TEXT:
        return
    inner = offsets[(offsets > offsets[0]) & (offsets < offsets[-1])]
    column.require(not (data[inner] & 0xC0 == 0x80).any(), "a character is divided between two texts")
    _check_utf8(column, data[int(offsets[0]) : int(offsets[-1])])


def _full_list(column: Column) -> None:
    _full_offsets(column, column.node.children[0].length)


def _full_view(column: Column) -> None:
    np = numpy_adapter.module()
    views = column.numbers(1)[: 16 * column.node.length].reshape(-1, 16)
    rows = views.view(np.int32)[_valid(column)]
    column.require(not (rows[:, 0] < 0).any(), "a view has a negative length")
    inside = rows[rows[:, 0] > _VIEWED_MAX].astype(np.int64)
    sizes = np.array([column.numbers(index).size for index in range(2, len(column.buffers))] or [-1], np.int64)
    there = (inside[:, 2] >= 0) & (inside[:, 2] < len(sizes)) & (inside[:, 3] >= 0)
    column.require(bool(there.all()), "a view names bytes that are not there")
    column.require(not (inside[:, 3] + inside[:, 0] > sizes[inside[:, 2]]).any(), "a view reaches beyond its bytes")
    for number in range(len(column.buffers) - 2):
        own = inside[inside[:, 2] == number]
        first = column.numbers(2 + number)[own[:, 3, None] + np.arange(4)] if len(own) else own[:, :0]
        same = own[:, 1].astype(np.int32).view(np.uint8).reshape(-1, 4)[:, : first.shape[1]] == first
        column.require(bool(same.all()), "a view does not begin as its bytes do")
    if column.node.format in TEXT:
        for length, _, number, offset in inside.tolist():
            _check_utf8(column, column.numbers(2 + number)[offset : offset + length])
        for row in views[_valid(column)]:
            length = int(row[:4].view(np.int32)[0])
            if length <= _VIEWED_MAX:
                _check_utf8(column, row[4 : 4 + length])


def _full_list_view(column: Column) -> None:
    np = numpy_adapter.module()
    valid, length = _valid(column), column.node.length
    starts, sizes = (column.numbers(index)[:length][valid].astype(np.int64) for index in (1, 2))
    limit = column.node.children[0].length
    good = (starts >= 0) & (sizes >= 0) & (starts <= limit) & (sizes <= limit - starts)
    column.require(bool(good.all()), f"a list reaches beyond the {limit} elements")


def _full_union(column: Column) -> None:
    np = numpy_adapter.module()
    length = column.node.length
    ids = column.numbers(0)[:length]
    column.require(bool(np.isin(ids, np.array(column.form.ids, np.int8)).all()), "a type id names no child")
    if column.form.kind == "dense_union":
        offsets = column.numbers(1)[:length]
        for number, child in zip(column.form.ids, column.node.children, strict=True):
            own = offsets[ids == number]
            column.require(not own.size or 0 <= int(own.min()) <= int(own.max()) < child.length, f"an offset is not in {child.name[:64]!r}")


def _full_run_ends(column: Column) -> None:
    ends = _ends_of(column)
    found = ends.numbers(1)[: ends.node.length]
    column.require(not found.size or (int(found[0]) > 0 and not (found[1:] <= found[:-1]).any()), "its run ends do not increase")


def _full_indices(column: Column, limit: int) -> None:
    indices = column.numbers(1)[: column.node.length][_valid(column)]
    good = not indices.size or 0 <= int(indices.min()) <= int(indices.max()) < limit
    column.require(good, f"an index is not in its dictionary of {limit} values")


def _valid(column: Column) -> Any:
    """The elements that are not null, as an index of an ndarray."""
    return slice(None) if column.buffers[0] is None else bits.unpacked(column.numbers(0), column.node.length)


def _check_utf8(column: Column, data: Any) -> None:
    try:
        str(data, "utf-8") if data.size else ""
    except UnicodeDecodeError as error:
        raise column.refused("its text is not UTF-8") from error


_SIZES: Final[Mapping[str, Callable[[Column], None]]] = {
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
_VALUES: Final[Mapping[str, Callable[[Column], None]]] = {
    "text": _full_text,
    "view": _full_view,
    "list": _full_list,
    "list_view": _full_list_view,
    "sparse_union": _full_union,
    "dense_union": _full_union,
    "run_ends": _full_run_ends,
}
