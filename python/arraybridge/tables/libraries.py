# SPDX-License-Identifier: Apache-2.0
"""Tables for their libraries: pyarrow, pandas, polars, DuckDB, and what each of them copies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from arraybridge.adapters import ensure_module
from arraybridge.arrays.classes import unknown_framework
from arraybridge.errors import BrokerError, raised_by
from arraybridge.tables.nodes import Node

if TYPE_CHECKING:
    from arraybridge.tables.table import Table

# The libraries, and the framework of the arrays that are not in a table.
TABLE: Final = "table"  # the name of a get that returns a Table in any case
LABELLED: Final = "xarray"
NAMES: Final[Mapping[str, str]] = {
    "pandas": "numpy", "polars": "numpy", "duckdb": "numpy", "pyarrow": "pyarrow", TABLE: "numpy", LABELLED: "numpy",
}  # fmt: skip


class Copied(NamedTuple):
    """A column that a library does not take as it is. A value."""

    name: str
    nbytes: int
    reason: str  # why it is copied


def check(library: str) -> None:
    """Imports the library. "": there is none.

    Raises:
        FrameworkNotAvailable: it is not installed.
    """
    if library not in ("", TABLE):
        ensure_module(library)


def made(library: str, table: Table) -> tuple[Any, list[Copied]]:
    """The library's object for a table, a column or a series, and what it copied.

    Raises:
        InvalidMemoryType: there is no such library. FrameworkNotAvailable: it is not installed.
        MemoryConversionError: it refuses the table.
    """
    make = _MAKERS.get(library) if isinstance(library, str) else None
    if make is None:
        raise unknown_framework(library, "table")
    module = ensure_module(library)
    try:
        return make(module, table)
    except BrokerError:
        raise
    except Exception as error:
        raise raised_by(error, "table", library, "hand_over") from error


def _pyarrow(pyarrow: Any, table: Table) -> tuple[Any, list[Copied]]:
    if table.kind == "column":
        return pyarrow.array(table), []
    found = pyarrow.table(table)
    return (found.column(0) if table.kind == "series" else found), []


def _pandas(pandas: Any, table: Table) -> tuple[Any, list[Copied]]:
    """Types of pandas as they were put; those of other libraries as pandas' types of Arrow, which copy nothing."""
    pyarrow = ensure_module("pyarrow")
    column = table.kind == "column"
    found = pyarrow.table({"": pyarrow.array(table)}) if column else pyarrow.table(table)
    known = (found.schema.metadata or {}).get(b"pandas")
    frame = _of_arrow(pandas, found) if known is None else found.to_pandas(split_blocks=True)
    for place in _objects(known, min(found.num_columns, frame.shape[1])):
        if frame.dtypes.iloc[place].name != "object":  # pandas 3 makes a str of it
            frame.isetitem(place, pandas.Series(found.column(place).to_numpy(), frame.index, object))
    copied = [] if known is None else list(_copied_of(frame, table))
    if table.kind == "table":
        return frame, copied
    series = frame.iloc[:, 0]
    return series.rename(None if series.name == "" else series.name), copied


def _of_arrow(pandas: Any, found: Any) -> Any:
    """A frame whose columns are those of a table of pyarrow; `to_pandas` takes three times as long for fifty columns."""
    arrays = enumerate(map(pandas.arrays.ArrowExtensionArray, found.columns))
    frame = pandas.DataFrame(dict(arrays), pandas.RangeIndex(found.num_rows), copy=False)
    frame.columns = pandas.Index(found.column_names)
    return frame


def _copied_of(frame: Any, table: Table) -> Iterator[Copied]:
    """The columns of a frame whose values do not lie in the table."""
    spans = table.spans
    for node, (_, values) in zip(table.nodes, frame.items(), strict=False):
        nbytes = table.bytes_of(node)
        if nbytes and not _lies_in(values.array, spans):
            yield Copied(node.name, nbytes, f"pandas copies it for its dtype {values.dtype}; put Arrow's dtypes to avoid it")


def _objects(metadata: bytes | None, count: int) -> set[int]:
    """The columns that pandas had as Python objects, such as text before its version 3."""
    try:
        columns = json.loads(metadata or b"{}").get("columns", [])
        return {place for place, each in enumerate(columns[:count]) if each.get("numpy_type") == "object"}
    except (ValueError, AttributeError, TypeError):
        return set()  # another program wrote it; pyarrow reports what it cannot read


def _lies_in(values: Any, spans: Sequence[tuple[int, int]]) -> bool:
    """True if an array of pandas has its values in memory of a table."""
    if hasattr(values, "_pa_array"):
        return True
    values = getattr(values, "codes", values)  # of categories
    values = getattr(values, "_ndarray", getattr(values, "_data", values))
    interface = getattr(values, "__array_interface__", None)
    return interface is not None and any(start <= interface["data"][0] < end for start, end in spans)


def _polars(polars: Any, table: Table) -> tuple[Any, list[Copied]]:
    copied = [Copied(node.name, table.bytes_of(node), reason) for node in table.nodes if (reason := _polars_copies(node))]
    if table.kind == "column":
        return polars.Series(table), copied
    frame = polars.DataFrame(table)
    return (frame.to_series(0) if table.kind == "series" else frame), copied


def _polars_copies(node: Node) -> str:
    """Why polars copies an array of this type; "": it does not."""
    if node.dictionary is not None:
        return "polars makes a Categorical or an Enum of a dictionary"
    if node.format in ("u", "U", "z", "Z"):
        return "polars makes views of the texts, 16 bytes each; their bytes stay where they are"
    return next(filter(None, map(_polars_copies, node.children)), "")


def _duckdb(duckdb: Any, table: Table) -> tuple[Any, list[Copied]]:
    """A relation, which reads the table where it lies, when it is executed."""
    if table.kind == "table":
        return duckdb.from_arrow(table), []
    pyarrow = ensure_module("pyarrow")
    [node] = table.nodes
    return duckdb.from_arrow(pyarrow.table({node.name or "value": pyarrow.array(table.column(node.name))})), []


_MAKERS: Final[Mapping[str, Callable[[Any, Table], tuple[Any, list[Copied]]]]] = {
    "pyarrow": _pyarrow,
    "pandas": _pandas,
    "polars": _polars,
    "duckdb": _duckdb,
}
