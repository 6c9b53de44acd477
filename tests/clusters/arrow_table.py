# SPDX-License-Identifier: Apache-2.0
"""A table for processes without a library of tables: two columns, which are handed over by Arrow's C interface."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from arraybridge import _core

ROWS = 1000
_COLUMNS = [
    ["l", "number", "", 0, ROWS, 0, [None, 0], [], None],
    ["u", "text", "", 2, ROWS, 0, [None, 1, 2], [], None],
]


class ArrowTable:
    """The numbers 0 to ROWS - 1, and a text for each."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        numbers = np.arange(ROWS)
        offsets, text = np.arange(ROWS + 1, dtype="i4") * 2, np.frombuffer(b"ab" * ROWS, "u1")
        node = ["+s", "", "", 0, ROWS, 0, [None], _COLUMNS, None]
        views = [_core.wrap(each) for each in (numbers, offsets, text.copy())]
        return _core.DescribedTable(json.dumps(["table", node, 0, 3]).encode(), views).arrow_stream()


def read(table: Any) -> tuple[int, dict[str, str], str]:
    """The sum of the numbers, the types, and the kind of the result of a get."""
    table.validate(full=True)
    return int(table["number"].sum()), table.types, type(table).__name__


EXPECTED = (ROWS * (ROWS - 1) // 2, {"number": "int64", "text": "utf8"}, "Table")
