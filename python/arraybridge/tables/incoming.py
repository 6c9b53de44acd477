# SPDX-License-Identifier: Apache-2.0
"""Objects that become tables when they are put: those with Arrow's C stream or array interface, and pandas' frames and series.
An array that a framework's adapter can read stays an array.
"""

from __future__ import annotations

from typing import Any

from arraybridge.adapters import ensure_module, numpy as numpy_adapter
from arraybridge.arrays.classes import framework_of, root_of
from arraybridge.errors import BrokerError, UnsupportedDtype, raised_by
from arraybridge.tables import nodes
from arraybridge.tables.nodes import Kind


def is_table(value: Any) -> bool:
    """True if it becomes a table. Imports nothing."""
    kind = type(value)
    if not (hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__")):
        return _pandas_name(kind) != "" or _is_relation(kind)
    if root_of(kind) == "arraybridge":
        return kind.__name__ == "Table"
    framework = framework_of(kind)
    if framework is not None:
        return framework == "pyarrow" and not _is_array(value)
    return not (hasattr(kind, "__array_interface__") or hasattr(kind, "__dlpack__"))  # as those of Pillow, which are arrays


def taken_apart(value: Any) -> tuple[list[Any], list[Any]]:
    """The kind and the node of a table, for a structure, and its leaves. REQUIRES: `is_table`.

    Raises:
        UnsupportedArray, UnsupportedDtype, InvalidRequest: it has no table, for instance because its columns have Python
            objects; names the column. FrameworkNotAvailable: pandas needs pyarrow for it.
    """
    from arraybridge.tables import joining, structures  # take milliseconds, and only tables need them

    kind, source = _source_of(value)
    try:
        field, chunks = structures.chunks_of(source)
    except BrokerError:
        raise
    except Exception as error:
        raise raised_by(error, type(value).__name__, "share", "hand_over") from error
    joiner = joining.Joiner()
    node = joiner.joined(field, [joining.Piece.whole(chunk) for chunk in chunks])
    if kind == "table" and field.format != "+s":
        kind = "column"
    # A tree has one array at least.
    return [kind, nodes.described(node)], joiner.leaves or [numpy_adapter.module().zeros(1, "uint8")]


def _source_of(value: Any) -> tuple[Kind, Any]:
    """An object with one of Arrow's interfaces that has the same values."""
    kind = type(value)
    if name := _pandas_name(kind):
        return ("series", _arrow_of(_frame_of(value))) if name == "Series" else ("table", _arrow_of(value))
    if _is_relation(kind) and not hasattr(kind, "__arrow_c_stream__"):
        return "table", value.arrow()
    column = framework_of(kind) == "pyarrow" or any(base.__name__ == "Series" for base in kind.__mro__)
    own: Kind = value.kind if root_of(kind) == "arraybridge" else "table"
    return ("column" if column else own), value


def _frame_of(series: Any) -> Any:
    """A series as a frame of one column; a frame cannot have the name None."""
    return series.to_frame("" if series.name is None else series.name)


def _arrow_of(frame: Any) -> Any:
    """A pandas frame as a table of pyarrow, with its index and what pandas needs to make the same frame again. Columns of
    NumPy's floats are taken as they are: NaN stays NaN there.

    Raises:
        UnsupportedDtype: a column has Python objects of several types, or of one that Arrow lacks.
    """
    pyarrow = ensure_module("pyarrow")
    if frame.columns.inferred_type.startswith("mixed"):
        reason = "its columns have names of several types, which become text: call frame.rename(columns=str) first"
        raise UnsupportedDtype("pandas", "share", "hand_over", reason)
    try:
        table = pyarrow.Table.from_pandas(frame)
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        text = "; ".join(map(str, error.args[:2]))
        way_out = "convert that column, for example with astype(str), or give the columns different names"
        raise UnsupportedDtype("pandas", "share", "hand_over", f"{text}: {way_out}") from error
    for index, dtype in enumerate(frame.dtypes):
        column = table.column(index)
        if getattr(dtype, "kind", "") == "f" and type(dtype).__module__.startswith("numpy") and column.null_count:
            table = table.set_column(index, table.field(index), _without_nulls(column, pyarrow))
    return table


def _without_nulls(column: Any, pyarrow: Any) -> Any:
    chunks = [
        pyarrow.Array.from_buffers(chunk.type, len(chunk), [None, chunk.buffers()[1]], 0, chunk.offset) for chunk in column.chunks
    ]  # fmt: skip
    return pyarrow.chunked_array(chunks, column.type)


def _pandas_name(kind: type) -> str:
    """ "DataFrame" or "Series" for those of pandas and of classes above them; "" for other classes."""
    for base in kind.__mro__:
        if root_of(base) == "pandas" and base.__name__ in ("DataFrame", "Series"):
            return base.__name__
    return ""


def _is_relation(kind: type) -> bool:
    return kind.__name__ == "DuckDBPyRelation"


def _is_array(value: Any) -> bool:
    """True if pyarrow's adapter can read it: numbers without nulls."""
    types = ensure_module("pyarrow").types
    found = value.type
    numbers = types.is_integer(found) or types.is_floating(found) or types.is_boolean(found)
    return bool(numbers or type(value).__name__ == "FixedShapeTensorArray") and not value.null_count
