# SPDX-License-Identifier: Apache-2.0
"""Facts are the (name, value) pairs that an object shows of itself in a notebook, as an HTML table.

Names and dtypes come from other processes, so all texts are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

from arraybridge import _core
from arraybridge.errors import printable

Facts = Sequence[tuple[str, object]]


def table_of(title: str, facts: Facts) -> str:
    """The HTML table of these facts, below a title."""
    rows = "".join(f"<tr><td>{_escaped(name)}</td><td>{_escaped(value)}</td></tr>" for name, value in facts)
    return f"<div><b>{_escaped(title)}</b><table>{rows}</table></div>"


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
    ])  # fmt: skip


def _escaped(value: object) -> str:
    return html.escape(printable(str(value)))
