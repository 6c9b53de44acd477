# SPDX-License-Identifier: Apache-2.0
"""Tables of every type that Arrow's C data interface has, the same in each process."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa

ROWS = 13


def _some(values: list[Any]) -> list[Any]:
    """ROWS of them, with nulls."""
    return [None if row % 5 == 3 else values[row % len(values)] for row in range(ROWS)]


def _nested() -> dict[str, Any]:
    lists = _some([[1, 2, None], [], [3]])
    structs = _some([{"a": 1, "b": "x"}, {"a": None, "b": "long enough to leave a view"}])
    texts = ["short", "", "a text that is longer than twelve bytes", "ü"]
    dense = pa.UnionArray.from_dense(
        pa.array([0, 1, 0, 1, 1], pa.int8()), pa.array([0, 0, 1, 1, 2], pa.int32()), [pa.array([1, None]), pa.array(["a", "b", None])]
    )
    sparse = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", None])])
    return {
        "list": pa.array(lists, pa.list_(pa.int32())),
        "large_list": pa.array(lists, pa.large_list(pa.int32())),
        "list of lists": pa.array(_some([[["a"], None], [[]]]), pa.list_(pa.list_(pa.string()))),
        "list_view": pa.array(lists, pa.list_view(pa.int32())),
        "large_list_view": pa.array(lists, pa.large_list_view(pa.int64())),
        "fixed_size_list": pa.array(_some([[1.0, 2.0], [3.0, None]]), pa.list_(pa.float32(), 2)),
        "struct": pa.array(structs, pa.struct({"a": pa.int8(), "b": pa.string_view()})),
        "map": pa.array(_some([[("k", 1)], []]), pa.map_(pa.string(), pa.int32())),
        "dense_union": dense,
        "sparse_union": sparse,
        "run_end_encoded": pa.RunEndEncodedArray.from_arrays(pa.array([3, 7, 13], pa.int32()), pa.array(["a", None, "b"])),
        "dictionary": pa.array(_some(texts)).dictionary_encode(),
        "dictionary of lists": pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int8()), pa.array([[1], [2, 3]])),
    }


def arrays() -> dict[str, pa.Array]:
    """An array of each type, with nulls where the type has them."""
    numbers = [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]
    texts = _some(["short", "", "a text that is longer than twelve bytes", "ü"])
    moment = datetime.datetime(2026, 7, 1, 12, 30, 15, 250000)
    found = {name: pa.array(_some([1, 2, 100]), getattr(pa, name)()) for name in numbers}
    found |= {name: pa.array(_some([1.5, -0.0, float("inf")]), getattr(pa, name)()) for name in ("float16", "float32", "float64")}
    found |= {name: pa.array(texts, getattr(pa, name)()) for name in ("string", "large_string", "string_view")}
    found |= {name: pa.array(texts, getattr(pa, name)()) for name in ("binary", "large_binary", "binary_view")}
    found |= {f"timestamp_{unit}": pa.array(_some([moment]), pa.timestamp(unit)) for unit in ("ms", "us", "ns")}
    found |= {f"duration_{unit}": pa.array(_some([5]), pa.duration(unit)) for unit in ("s", "ms", "us", "ns")}
    found |= {
        f"decimal{bits}": pa.array(_some([decimal.Decimal("1.25")]), getattr(pa, f"decimal{bits}")(9, 2)) for bits in (32, 64, 128, 256)
    }
    return {
        **found,
        "null": pa.nulls(ROWS),
        "bool": pa.array(_some([True, False])),
        "timestamp with a zone": pa.array(_some([moment]), pa.timestamp("us", "Europe/Berlin")),
        "date32": pa.array(_some([moment.date()]), pa.date32()),
        "date64": pa.array(_some([moment.date()]), pa.date64()),
        "time32": pa.array(_some([moment.time()]), pa.time32("ms")),
        "time64": pa.array(_some([moment.time()]), pa.time64("ns")),
        "interval": pa.array(_some([pa.MonthDayNano([1, -2, 3])])),
        "fixed_size_binary": pa.array(_some([b"abc"]), pa.binary(3)),
        "extension": pa.ExtensionArray.from_storage(pa.uuid(), pa.array(_some([b"0123456789abcdef"]), pa.binary(16))),
        **_nested(),
    }


def forms(array: pa.Array) -> dict[str, pa.ChunkedArray]:
    """The same type as one chunk, several, a slice, slices that begin inside of a byte, and none."""
    return {
        "whole": pa.chunked_array([array]),
        "chunks": pa.chunked_array([array, array.slice(1, 2), array]),
        "slice": pa.chunked_array([array.slice(1, max(0, len(array) - 2))]),
        "slices": pa.chunked_array([array.slice(2), array.slice(1, 1), array.slice(3, 0)]),
        "empty": pa.chunked_array([array.slice(0, 0)]),
        "without chunks": pa.chunked_array([], array.type),
    }


def table_of(column: pa.ChunkedArray) -> pa.Table:
    """A table of this column, with metadata of its own."""
    field = pa.field("column", column.type, metadata={"unit": "m", "": ""})
    return pa.Table.from_arrays([column], schema=pa.schema([field], metadata={"made by": "a test"}))


def mixed(rows: int = 1000) -> pa.Table:
    """A table of numbers, text, nulls and categories, in two chunks."""
    numbers = list(range(rows))
    half = pa.table(
        {
            "x": pa.array(numbers, pa.float64()),
            "n": pa.array([None if each % 7 == 0 else each for each in numbers], pa.int32()),
            "name": pa.array([None if each % 11 == 0 else f"name {each}" for each in numbers]),
            "kind": pa.array([f"kind {each % 3}" for each in numbers]).dictionary_encode(),
            "flag": pa.array([each % 3 == 0 for each in numbers]),
            "at": pa.array(numbers, pa.timestamp("us", "UTC")),
        }
    )
    return pa.concat_tables([half, half])
