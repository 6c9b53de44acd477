# SPDX-License-Identifier: Apache-2.0
"""The formats of Arrow's C data interface, and the buffers and children that an array of each has.

Source: https://arrow.apache.org/docs/format/CDataInterface.html#data-type-description-format-strings and
https://arrow.apache.org/docs/format/Columnar.html.
"""

from __future__ import annotations

import functools
import re
from typing import Final, Literal, NamedTuple

Kind = Literal[
    "null", "bits", "fixed", "text", "view", "list", "list_view", "fixed_list", "struct", "sparse_union", "dense_union", "run_ends"
]  # fmt: skip
NUMBERS: Final = {
    "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32", "I": "uint32", "l": "int64", "L": "uint64",
    "e": "float16", "f": "float32", "g": "float64",
}  # fmt: skip
_FIXED: Final = {
    **NUMBERS, "tdD": "int32", "tdm": "int64", "tts": "int32", "ttm": "int32",
    "ttu": "int64", "ttn": "int64", "tiM": "int32",
}  # fmt: skip
_WIDE: Final = {"tiD": 8, "tin": 16}
_OFFSETS: Final = {"u": "int32", "z": "int32", "U": "int64", "Z": "int64", "+l": "int32", "+L": "int64", "+m": "int32"}
_TIMES: Final = {"s": "s", "m": "ms", "u": "us", "n": "ns"}
_NAMES: Final = {
    "n": "null", "b": "bool", "u": "utf8", "U": "large_utf8", "vu": "utf8_view", "z": "binary", "Z": "large_binary",
    "vz": "binary_view", "+s": "struct", "+l": "list", "+L": "large_list", "+vl": "list_view", "+vL": "large_list_view",
    "+m": "map", "+r": "run_end_encoded", "tdD": "date32", "tdm": "date64", "tts": "time32[s]", "ttm": "time32[ms]",
    "ttu": "time64[us]", "ttn": "time64[ns]", "tiM": "interval[months]", "tiD": "interval[days, ms]",
    "tin": "interval[months, days, ns]",
}  # fmt: skip
TEXT: Final = frozenset({"u", "U", "vu"})  # whose bytes are UTF-8
_UNION: Final = re.compile(r"\+u[sd]:(\d{1,3}(?:,\d{1,3})*)?")
_DECIMAL: Final = re.compile(r"d:-?\d{1,4},-?\d{1,4}(?:,(32|64|128|256))?")


_BUFFERS: Final = {"null": 0, "run_ends": 0, "text": 3, "list_view": 3, "struct": 1, "fixed_list": 1, "sparse_union": 1}
_NO_VALIDITY: Final = frozenset({"null", "sparse_union", "dense_union", "run_ends"})


class Form(NamedTuple):
    """The parts of arrays of a format. A value.

    Attributes:
        dtype: of the elements of a fixed kind, or of the offsets of a text or list; "uint8": `width` bytes an element.
        width: bytes of an element of a fixed kind.
        children: their number; -1: any.
        per_row: of a list of a fixed size: elements of a row.
        ids: of a union: the type ids of its children.
    """

    kind: Kind
    dtype: str = ""
    width: int = 0
    children: int = 0
    per_row: int = 0
    ids: tuple[int, ...] = ()

    @property
    def validity(self) -> bool:
        """True if the first buffer says which elements are null."""
        return self.kind not in _NO_VALIDITY

    @property
    def buffers(self) -> int:
        """The number of buffers; of a binary view without those of its data."""
        return _BUFFERS.get(self.kind, 2)


@functools.lru_cache(maxsize=256)
def form_of(format: str) -> Form | None:
    """The form of a format; None: it is not one of Arrow 1.5's C data interface. Timestamps may have any zone."""
    if format in _FIXED:
        return Form("fixed", _FIXED[format], int(re.sub(r"\D", "", _FIXED[format])) // 8)
    if format in _WIDE:
        return Form("fixed", "uint8", _WIDE[format])
    if format in _OFFSETS:
        return Form("list", _OFFSETS[format], children=1) if format.startswith("+") else Form("text", _OFFSETS[format])
    if format in ("n", "b", "vu", "vz", "+s", "+r", "+vl", "+vL"):
        return {
            "n": Form("null"), "b": Form("bits"), "vu": Form("view"), "vz": Form("view"), "+s": Form("struct", children=-1),
            "+r": Form("run_ends", children=2), "+vl": Form("list_view", "int32", children=1),
            "+vL": Form("list_view", "int64", children=1),
        }[format]  # fmt: skip
    return _parametric(format)


def _parametric(format: str) -> Form | None:
    if re.match(r"ts[smun]:[^\0]*\Z", format) or re.fullmatch(r"tD[smun]", format):
        return Form("fixed", "int64", 8)
    if found := _DECIMAL.fullmatch(format):
        return Form("fixed", "uint8", int(found[1] or 128) // 8)
    if found := re.fullmatch(r"(w|\+w):(\d{1,18})", format):
        size = int(found[2])
        return Form("fixed", "uint8", size) if found[1] == "w" else Form("fixed_list", children=1, per_row=size)
    return _union(format)


def _union(format: str) -> Form | None:
    found = _UNION.fullmatch(format)
    if found is None:
        return None
    ids = tuple(map(int, found[1].split(","))) if found[1] else ()
    if max(ids, default=0) > 127 or len(set(ids)) < len(ids):
        return None
    return Form("dense_union" if format[2] == "d" else "sparse_union", children=len(ids), ids=ids)


def name_of(format: str) -> str:
    """The name of a type for people: "utf8", "timestamp[us, UTC]", "int64"."""
    if format in _NAMES:
        return _NAMES[format]
    if format in _FIXED:
        return _FIXED[format]
    if format.startswith(("ts", "tD")):
        unit, zone = _TIMES.get(format[2:3], ""), format[4:]
        return f"duration[{unit}]" if format[1] == "D" else f"timestamp[{unit}{', ' if zone else ''}{zone}]"
    if format.startswith(("d:", "w:", "+w:")):
        kind = {"d": "decimal", "w": "fixed_size_binary", "+w": "fixed_size_list"}[format.partition(":")[0]]
        return f"{kind}[{format.partition(':')[2]}]"
    return "union" if format.startswith("+u") else format


def numpy_name(format: str) -> str:
    """NumPy's dtype of the elements of a fixed format: "datetime64[us]"; "": the dtype of its form."""
    if format.startswith("ts"):
        return f"datetime64[{_TIMES[format[2]]}]"
    if format.startswith("tD"):
        return f"timedelta64[{_TIMES[format[2]]}]"
    return "datetime64[ms]" if format == "tdm" else ""
