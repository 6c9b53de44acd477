# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown, aligned so that they are readable as plain text."""

from __future__ import annotations

from collections.abc import Sequence

from arraybridge.errors import printable


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """REQUIRES: every row is as long as the head."""
    head, rows = [printable(cell) for cell in head], [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, rows)])
