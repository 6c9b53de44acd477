# SPDX-License-Identifier: Apache-2.0
"""Checks the values of a table that another process put: each offset, index, and character. The extension has checked the
sizes, and the first and last offsets, when it read the description (`DescribedTable`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.errors import InvalidRequest
from arraybridge.tables import bits
from arraybridge.tables.formats import TEXT, Form, form_of
from arraybridge.tables.nodes import Node

if TYPE_CHECKING:
    from arraybridge._core import View

_VIEWED_MAX: Final = 12  # bytes that a binary view has itself
_Views = Sequence["View"]


class Column:
    """An array of a table, beside its buffers, while it is checked. REQUIRES: its sizes were checked."""

    def __init__(self, node: Node, views: _Views, path: str) -> None:
        self.node = node
        self.path = path or "the table"
        form = form_of(node.format)
        assert form is not None
        self.form: Final[Form] = form
        self.buffers = [None if each is None else views[each] for each in node.buffers]

    def refused(self, reason: str) -> InvalidRequest:
        """The error about this column."""
        return InvalidRequest(f"the share's table is invalid: column {self.path[:200]!r}: {reason}: put the table again")

    def require(self, good: bool, reason: str) -> None:
        """Raises `refused(reason)` unless `good`."""
        if not good:
            raise self.refused(reason)

    def numbers(self, index: int) -> Any:
        """A buffer as an ndarray. REQUIRES: it is not None."""
        view = self.buffers[index]
        assert view is not None
        return numpy_adapter.view(view)


def check_full(node: Node, views: _Views, path: str = "") -> None:
    """Checks the values of the buffers. REQUIRES: their sizes were checked.

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
        check_values = _VALUES.get(column.form.kind)
        if check_values is not None:
            check_values(column, views)
    for child in node.children:
        check_full(child, views, f"{path}.{child.name}" if path else child.name)


def _full_offsets(column: Column, limit: int) -> Any:
    offsets = column.numbers(1)[: column.node.length + 1]
    column.require(not (offsets[1:] < offsets[:-1]).any(), "its offsets decrease")
    column.require(0 <= int(offsets[0]) and int(offsets[-1]) <= limit, "its offsets reach beyond the values")
    return offsets


def _full_text(column: Column, views: _Views) -> None:
    data = column.numbers(2)
    offsets = _full_offsets(column, data.size)
    if column.node.format not in TEXT:
        return
    inner = offsets[(offsets > offsets[0]) & (offsets < offsets[-1])]
    column.require(not (data[inner] & 0xC0 == 0x80).any(), "a character is divided between two texts")
    _check_utf8(column, data[int(offsets[0]) : int(offsets[-1])])


def _full_list(column: Column, views: _Views) -> None:
    _full_offsets(column, column.node.children[0].length)


def _full_view(column: Column, views: _Views) -> None:
    np = numpy_adapter.module()
    each_view = column.numbers(1)[: 16 * column.node.length].reshape(-1, 16)
    rows = each_view.view(np.int32)[_valid(column)]
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
        for row in each_view[_valid(column)]:
            length = int(row[:4].view(np.int32)[0])
            if length <= _VIEWED_MAX:
                _check_utf8(column, row[4 : 4 + length])


def _full_list_view(column: Column, views: _Views) -> None:
    np = numpy_adapter.module()
    valid, length = _valid(column), column.node.length
    starts, sizes = (column.numbers(index)[:length][valid].astype(np.int64) for index in (1, 2))
    limit = column.node.children[0].length
    good = (starts >= 0) & (sizes >= 0) & (starts <= limit) & (sizes <= limit - starts)
    column.require(bool(good.all()), f"a list reaches beyond the {limit} elements")


def _full_union(column: Column, views: _Views) -> None:
    np = numpy_adapter.module()
    length = column.node.length
    ids = column.numbers(0)[:length]
    column.require(bool(np.isin(ids, np.array(column.form.ids, np.int8)).all()), "a type id names no child")
    if column.form.kind == "dense_union":
        offsets = column.numbers(1)[:length]
        for number, child in zip(column.form.ids, column.node.children, strict=True):
            own = offsets[ids == number]
            column.require(not own.size or 0 <= int(own.min()) <= int(own.max()) < child.length, f"an offset is not in {child.name[:64]!r}")


def _full_run_ends(column: Column, views: _Views) -> None:
    ends = Column(column.node.children[0], views, f"{column.path}.run_ends")
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


_VALUES: Final[Mapping[str, Callable[[Column, _Views], None]]] = {
    "text": _full_text,
    "view": _full_view,
    "list": _full_list,
    "list_view": _full_list_view,
    "sparse_union": _full_union,
    "dense_union": _full_union,
    "run_ends": _full_run_ends,
}
