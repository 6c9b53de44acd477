# SPDX-License-Identifier: Apache-2.0
"""The layout of a sparse array: how dense parts form the whole. A share's structure contains it beside the parts.

The parts, in this order:

    csr, csc         indptr (1 + rows, or columns), indices (stored values), data (stored values)
    coo, "apart"     coords[0] ... coords[n - 1] (stored values each), data
    coo, "by_axis"   indices (dimensions, stored values), data
    coo, "by_value"  indices (stored values, dimensions), data
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, get_args

from arraybridge.errors import InvalidRequest

Format = Literal["csr", "csc", "coo"]
Indices = Literal["apart", "by_axis", "by_value"]
_SIZE_MAX: Final = 2**63 - 1
_NDIM_MAX: Final = 64


class Layout(NamedTuple):
    """How dense parts form a sparse array. A value."""

    format: Format
    shape: tuple[int, ...]
    indices: Indices = "apart"  # of coo
    sorted: bool = False  # of coo: in row-major order, without duplicates
    matrix: bool = False  # SciPy's older class, whose * multiplies matrices

    @property
    def part_names(self) -> tuple[str, ...]:
        """Their names in errors, in order."""
        if self.format != "coo":
            return "indptr", "indices", "data"
        if self.indices != "apart":
            return "indices", "data"
        return *(f"coords[{axis}]" for axis in range(len(self.shape))), "data"


def described(layout: Layout) -> dict[str, Any]:
    """The layout as a part of a structure."""
    return {**layout._asdict(), "shape": list(layout.shape)}


def read(body: Any) -> Layout:
    """The layout in a structure, which comes from another process.

    Raises:
        InvalidRequest: it is invalid.
    """
    if type(body) is not dict or set(body) != set(Layout._fields):
        raise InvalidRequest("the share's structure contains a sparse array without a layout")
    layout, sizes = Layout(**body), body["shape"]
    known = layout.format in get_args(Format) and layout.indices in get_args(Indices)
    whole = type(sizes) is list and 0 < len(sizes) <= _NDIM_MAX
    whole = whole and all(type(size) is int and 0 <= size <= _SIZE_MAX for size in sizes)
    flags = type(layout.sorted) is bool and type(layout.matrix) is bool
    if not (known and whole and flags) or (layout.format != "coo" and len(sizes) != 2):
        raise InvalidRequest("the share's structure contains a sparse array of an unknown layout")
    return layout._replace(shape=tuple(sizes))
