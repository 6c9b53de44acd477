# SPDX-License-Identifier: Apache-2.0
"""A Drawing is an SVG picture whose colours have roles, so that light and dark pages show it in colours of their own.

It measures each text with an upper bound of its width and refuses one that does not fit: no label is cut.
"""

from __future__ import annotations

from html import escape
from typing import Final, Literal

Anchor = Literal["start", "middle", "end"]

_LIGHT: Final = {
    "page": "#ffffff", "panel": "#f6f8fa", "room": "#ffffff", "line": "#afb8c1", "ink": "#1f2328", "soft": "#59636e",
    "ours": "#0969da", "peer": "#8c959f", "floor": "#d0a14a",
}  # fmt: skip
_DARK: Final = {
    "page": "#0d1117", "panel": "#151b23", "room": "#212830", "line": "#59636e", "ink": "#f0f6fc", "soft": "#a6b0bb",
    "ours": "#4493f8", "peer": "#7d8590", "floor": "#c69026",
}  # fmt: skip
_FONT: Final = "font-family: system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
_WIDTH_OF_A_LETTER: Final = 0.6  # of the font's size, at most; DejaVu Sans is the widest of the fonts
_BOLD: Final = 1.15


def width_of(text: str, size: float, bold: bool = False) -> float:
    return _WIDTH_OF_A_LETTER * size * len(text) * (_BOLD if bold else 1)


def _rules(colours: dict[str, str]) -> str:
    return " ".join(f".{role} {{ fill: {colour} }} .{role}-line {{ stroke: {colour} }}" for role, colour in colours.items())


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class Drawing:
    """`title` is what a screen reader says of the picture."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._width = width
        self._height = height
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_number(width)}" height="{_number(height)}" '
            f'viewBox="0 0 {_number(width)} {_number(height)}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>text {{ {_FONT} }} {_rules(_LIGHT)} @media (prefers-color-scheme: dark) {{ {_rules(_DARK)} }}</style>",
        ]
        self.box(0, 0, width, height, "page", rounded=8)

    def box(self, x: float, y: float, width: float, height: float, role: str, line: str = "", rounded: float = 0) -> None:
        around = f' class="{role} {line}-line"' if line else f' class="{role}"'
        corners = f' rx="{_number(rounded)}"' if rounded else ""
        place = " ".join(f'{key}="{_number(value)}"' for key, value in (("x", x), ("y", y), ("width", width), ("height", height)))
        self._parts.append(f"<rect {place}{corners}{around}/>")

    def text(
        self, x: float, y: float, text: str, role: str = "ink", size: float = 13, anchor: Anchor = "start", bold: bool = False,
        room: float | None = None,
    ) -> None:  # fmt: skip
        """`room`: the width that the text may have; None: up to the picture's edge.

        Raises:
            ValueError: the text does not fit.
        """
        start, end = x, self._width - x
        edge = {"start": end, "middle": 2 * min(start, end), "end": start}[anchor]
        width, room = width_of(text, size, bold), edge if room is None else room
        if width > room:
            raise ValueError(f"{text!r} needs {width:.0f} units and has {room:.0f}")
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{_number(x)}" y="{_number(y)}" font-size="{_number(size)}" text-anchor="{anchor}"{weight} '
            f'class="{role}">{escape(text)}</text>'
        )

    def arrow(self, x: float, y1: float, y2: float, both: bool = False, dashed: bool = False) -> None:
        """A vertical arrow to `y2`; `both`: its start has a head, too."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(
            f'<path d="M{_number(x)} {_number(y1)}V{_number(y2)}" fill="none" stroke-width="1.5"{dashes} class="soft-line"/>'
        )
        down = 1 if y2 > y1 else -1
        for tip, way in [(y2, down)] + ([(y1, -down)] if both else []):
            self._parts.append(f'<path d="M{_number(x)} {_number(tip)}l-4 {_number(-8 * way)}h8z" class="soft"/>')

    def __str__(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])
