# SPDX-License-Identifier: Apache-2.0
"""A Table is a table of a share: columns in broker memory, for any library of Arrow and any framework."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from arraybridge import _core, autograph
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.errors import InvalidRequest, UnsupportedArray, from_status, printable
from arraybridge.notebook.facts import ROWS_MAX as SHOWN_MAX, rows_of
from arraybridge.notebook.pictures import picture_of
from arraybridge.tables import bits, libraries, nodes, validation
from arraybridge.tables.formats import NUMBERS, Form, form_of, name_of, numpy_name
from arraybridge.tables.nodes import Description, Kind, Node

if TYPE_CHECKING:
    from arraybridge._core import View

Show = Callable[["View"], Any]
_LIBRARIES: Final = "get it as 'pyarrow', 'pandas', 'polars' or 'duckdb'"


class Table:
    """A table of a share. Its columns lie in the broker's memory and cannot be written; nothing is copied to make it.

    `Broker.get(name)` returns it for a table, with any framework: a column, by its name, is an array of that framework. Every
    library that reads Arrow's C stream interface takes it as it is, such as `pyarrow.table` and `polars.DataFrame`.

    Attributes:
        nbytes: bytes of all buffers.

    Example:
        >>> import pyarrow
        >>> share = broker.put(pyarrow.table({"x": [1.0, 2.0], "name": ["a", None]}), "people")
        >>> table = broker.get("people", "torch")
        >>> table["x"], len(table), table.columns
        (tensor([1., 2.], dtype=torch.float64), 2, ('x', 'name'))
    """

    __slots__ = ("_framework", "_kind", "_node", "_parts", "_show", "_views", "nbytes")

    def __init__(self, parts: _core.DescribedTable, views: Sequence[View], framework: str, show: Show, kind: Kind) -> None:
        self._parts: Final = parts
        self._views: Final = views
        self._framework: Final = framework
        self._show: Final = show
        self._kind: Final = kind
        self._node: Node | None = None  # nothing has asked for it yet
        self.nbytes: Final = parts.nbytes

    @classmethod
    def of(cls, description: Description, views: list[View], framework: str, show: Show) -> Table:
        """The table of a description.

        Raises:
            InvalidRequest: it violates the grammar, or does not fit the arrays.
        """
        try:
            parts = _core.DescribedTable(description.text, views)
        except _core.StatusError as status:
            raise from_status(status) from None
        return cls(parts, views[parts.first : parts.first + parts.count], framework, show, cast(Kind, parts.kind))

    @classmethod
    def of_array(cls, view: View) -> Table:
        """One array of numbers as a column.

        Raises:
            UnsupportedArray: it has not one dimension, or strides, lies on a GPU, or has a dtype that Arrow lacks.
        """
        try:
            view.__arrow_c_array__()
        except BufferError as error:
            raise UnsupportedArray("share", "arrow", "hand_over", str(error)) from error
        format = next(each for each in NUMBERS if NUMBERS[each] == view.dtype_name)
        node = Node(format, "", b"", 0, view.size, 0, (None, 0), (), None)
        text = json.dumps(["column", nodes.described(node), 0, 1])
        return cls.of(Description(text.encode()), [view], "numpy", numpy_adapter.view)

    @property
    def kind(self) -> Kind:
        """The kind of what was put: "table", "column" (one array), "series" (of pandas, with its index)."""
        return self._kind

    @property
    def node(self) -> Node:
        """The description of the whole."""
        if self._node is None:
            self._node = nodes.node_of(self._parts.described())
        return self._node

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The description of each column, in order; of a series its values alone."""
        if self._kind == "column":
            return (self.node,)
        return self.node.children[:1] if self._kind == "series" else self.node.children

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(each.name for each in self.nodes)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where the bytes of the buffers begin and end in this process."""
        return [(view.address, view.address + view.nbytes) for view in self._views if view.nbytes]

    def bytes_of(self, node: Node) -> int:
        """Bytes of the buffers of a column, of its children and of its dictionary."""
        inner = (*node.children, *(() if node.dictionary is None else (node.dictionary,)))
        return sum(self._views[each].nbytes for each in node.buffers if each is not None) + sum(map(self.bytes_of, inner))

    @property
    def types(self) -> dict[str, str]:
        """The type of each column, as Arrow calls it: "int64", "utf8", "timestamp[us, UTC]"."""
        return {each.name: _type_of(each) for each in self.nodes}

    def validate(self, full: bool = False) -> None:
        """Checks what the process that put the table has written. Sizes, and the first and last offsets, were checked when it
        was read; `full` reads all buffers: offsets, indices into dictionaries, numbers of nulls, and UTF-8. A table that passes
        cannot make a library read outside of it, as long as its share is sealed or its maker writes to it no more.

        Raises:
            InvalidRequest: names the column and its defect.

        Example:
            >>> import pyarrow
            >>> share = broker.put(pyarrow.table({"name": ["a", "b"]}), "checked", sealed=True)
            >>> broker.get("checked").validate(full=True)
        """
        try:
            self._parts.check()
        except _core.StatusError as status:
            raise from_status(status) from None
        if full:
            validation.check_full(self.node, self._views)

    def to(self, library: str) -> Any:
        """The table for "pyarrow", "pandas", "polars" or "duckdb", as `Broker.get` with this name returns it.

        Raises:
            FrameworkNotAvailable: the library is not installed. InvalidMemoryType: it is none of these.

        Example:
            >>> import pyarrow
            >>> share = broker.put(pyarrow.table({"x": [1, 2]}), "numbers")
            >>> broker.get("numbers").to("polars")["x"].sum()
            3
        """
        return libraries.made(library, self)[0]

    def column(self, name: str) -> Table:
        """The table's column of this name alone, as a Table of the kind "column".

        Raises:
            InvalidRequest: there is no such column, or several.
        """
        place = self._place_of(name)
        parts = self._parts if self._kind == "column" else self._parts.column(place)
        return Table(parts, self._views, self._framework, self._show, "column")

    def showing(self, show: Show) -> Table:
        """The same table, whose arrays are made so."""
        return Table(self._parts, self._views, self._framework, show, self._kind)

    def array(self) -> Any:
        """The one column of a table that is a column or a series, as an array of the framework."""
        if len(self.columns) != 1:
            raise InvalidRequest(f"the table has {len(self.columns)} columns: name one of {list(self.columns)[:SHOWN_MAX]}")
        return self[self.columns[0]]

    def __getitem__(self, name: str) -> Any:
        """The column as an array of the framework. Without a copy: numbers and times without nulls, and lists of such numbers
        of a fixed size (two dimensions); NumPy gets times as its own dtypes. Booleans are single bits in Arrow and are copied.

        Raises:
            InvalidRequest: there is no such column, or several.
            UnsupportedArray: it has nulls, or a type that is no array: text, lists, structs, decimals, dictionaries.
            UnsupportedDtype: the framework lacks the dtype.
        """
        node = self.nodes[self._place_of(name)]
        form = _form(node)
        _refuse_nulls(node, name, self._framework)
        if form.kind == "fixed_list":
            _refuse_nulls(node.children[0], name, self._framework)
            if _is_number(node.children[0]):
                return self._show(_cut(self._values(node.children[0]), (node.length, form.per_row)))
        if form.kind == "bits":
            return self._show(_core.wrap(bits.unpacked(numpy_adapter.view(self._values(node)), node.length)))
        if not _is_number(node):
            reason = f"column {printable(name)!r} is {_type_of(node)}, which has no array: {_LIBRARIES}"
            raise UnsupportedArray("table", self._framework, "hand_over", reason)
        view = self._values(node)
        if view.size != node.length:
            view = _cut(view, (node.length,))
        own = numpy_name(node.format) if self._framework == "numpy" else ""
        return self._show(view.named(own, view.dtype_code) if own else view)

    def keys(self) -> tuple[str, ...]:
        """The names of the columns, so that `dict(table)` has all of them as arrays."""
        return self.columns

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __len__(self) -> int:
        """The number of rows."""
        return len(self._parts)

    def __arrow_c_schema__(self) -> Any:
        """A capsule of the schema, for libraries of Arrow."""
        return self._parts.arrow_schema()

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Capsules of the schema and the array. Its consumer casts what it wants otherwise."""
        return self._parts.arrow_array()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """A capsule of a stream that has the table as one chunk. Its consumer casts what it wants otherwise."""
        return self._parts.arrow_stream()

    def __repr__(self) -> str:
        shown = ", ".join(f"{printable(name)}: {printable(kind)}" for name, kind in list(self.types.items())[:SHOWN_MAX])
        more = len(self.columns) - SHOWN_MAX
        return f"<Table of {len(self)} rows, {self.nbytes} bytes: {shown}{f' and {more} more' if more > 0 else ''}>"

    def _repr_html_(self) -> str:
        shown = self.nodes[:SHOWN_MAX]
        rows = [(each.name, _type_of(each), each.nulls) for each in shown]
        pictures = [self._picture(each) for each in shown]
        title = f"Table of {len(self)} rows, {self.nbytes} bytes"
        return rows_of(title, ("column", "type", "nulls"), rows, pictures, len(self.nodes) - len(shown))

    def _picture(self, node: Node) -> str:
        if node.nulls or node.format not in NUMBERS or not _is_number(node):
            return ""
        return picture_of(numpy_adapter.view(self._values(node))[: node.length])

    def _place_of(self, name: str) -> int:
        found = [place for place, each in enumerate(self.nodes) if each.name == name]
        if len(found) == 1:
            return found[0]
        what = f"{len(found)} columns named" if found else "no column named"
        raise InvalidRequest(f"the table has {what} {name!r}: it has {list(self.columns)[:SHOWN_MAX]}")

    def _values(self, node: Node) -> View:
        """The second buffer. REQUIRES: a form with one."""
        return self._views[node.buffers[1] or 0]


def _form(node: Node) -> Form:
    found = form_of(node.format)
    assert found is not None  # it was checked
    return found


def _is_number(node: Node) -> bool:
    """True for numbers and times, which arrays have, of at most 64 bits."""
    form = _form(node)
    return form.kind == "fixed" and node.format[0] not in "dw" and form.width <= 8 and node.dictionary is None


def _type_of(node: Node) -> str:
    return name_of(node.format) if node.dictionary is None else f"dictionary of {name_of(node.dictionary.format)}"


def _refuse_nulls(node: Node, name: str, framework: str) -> None:
    if node.nulls:
        what = f"column {printable(name)!r} has {node.nulls} nulls, which arrays cannot have"
        raise UnsupportedArray("table", framework, "hand_over", f"{what}: call fill_null before the put, or {_LIBRARIES}")


def _cut(view: View, shape: tuple[int, ...]) -> View:
    """The first elements of an array in this shape."""
    np = numpy_adapter.module()
    count = int(np.prod(shape, dtype=np.int64))
    made = numpy_adapter.view(view)[:count].reshape(shape)
    return _core.wrap_constant(made) if view.read_only else _core.wrap(made)


autograph.mark_module(__name__)
