# SPDX-License-Identifier: Apache-2.0
"""Facts are the (name, value) pairs that an object shows of itself in a notebook, as an HTML table.

Names and dtypes come from other processes, so all texts are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from arraybridge import _core
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.arrays.devices import HOST, named
from arraybridge.errors import printable
from arraybridge.notebook.pictures import picture_of
from arraybridge.planner import COMMON

Facts = Sequence[tuple[str, object]]
ROWS_MAX: Final = 32  # of a table of many objects


def table_of(title: str, facts: Facts, picture: str = "") -> str:
    """The HTML table of these facts, below a title; `picture`: an SVG below it."""
    rows = "".join(f"<tr><td>{_escaped(name)}</td><td>{_escaped(value)}</td></tr>" for name, value in facts)
    return f"<div><b>{_escaped(title)}</b><table>{rows}</table>{picture}</div>"


def rows_of(title: str, head: Sequence[str], rows: Sequence[Sequence[object]], pictures: Sequence[str] = (), more: int = 0) -> str:
    """The HTML table of several objects. `pictures`: the SVG of each row; `more`: the number of objects that are not shown."""
    drawn = [f"<td>{picture}</td>" for picture in pictures] or [""] * len(rows)
    body = "".join(
        f"<tr>{''.join(f'<td>{_escaped(value)}</td>' for value in row)}{picture}</tr>" for row, picture in zip(rows, drawn, strict=True)
    )
    heads = "".join(f"<th>{_escaped(name)}</th>" for name in (*head, *([""] if pictures else [])))
    last = f"<tr><td>and {more} more</td></tr>" if more > 0 else ""
    return f"<div><b>{_escaped(title)}</b><table><tr>{heads}</tr>{body}{last}</table></div>"


def table_of_view(view: _core.View, device: str, holder: str) -> str:
    """The HTML table of a View, for its `_repr_html_`.

    Args:
        device: its name.
        holder: "" if it is not known here.
    """
    return table_of("View", [
        ("dtype", view.dtype_name or "unnamed"),
        ("shape", view.shape),
        ("strides", view.strides),
        ("device", device),
        ("bytes", view.nbytes),
        ("access", "read-only" if view.read_only else "writable"),
        *([("held by", holder)] if holder else []),
    ], picture_of_view(view))  # fmt: skip


def table_of_arrays(title: str, arrays: Sequence[tuple[str, _core.View]], more: int) -> str:
    """The HTML table of arrays with their names and pictures."""
    rows = [(name, view.dtype_name, view.shape, view.nbytes, named(view.device)) for name, view in arrays]
    pictures = [picture_of_view(view) for _, view in arrays]
    return rows_of(title, ("name", "dtype", "shape", "bytes", "device"), rows, pictures, more)


def picture_of_view(view: _core.View) -> str:
    """Its picture, if it lies in host memory; "" otherwise."""
    drawn = view.device == HOST and view.dtype_name in COMMON
    return picture_of(numpy_adapter.view(view)) if drawn else ""


def _escaped(value: object) -> str:
    return html.escape(printable(str(value)))
