# SPDX-License-Identifier: Apache-2.0
"""Sparse arrays are put as their dense parts, and a Layout that describes how the parts form the whole.

A put rearranges only compressed rows and columns whose indices are not sorted or name a position twice: most frameworks
compute wrong values with those, and SciPy sorts them in place. If the framework of the reader has another layout, it
rearranges the parts. The plan reports both. NumPy's sparse arrays are SciPy's.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from arraybridge import _core
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.arrays import devices
from arraybridge.arrays.classes import sparse_framework_of
from arraybridge.arrays.sparse_layout import Layout
from arraybridge.conversion.source import source_of
from arraybridge.errors import BrokerError, UnsupportedArray, ZeroCopyUnavailable, raised_by
from arraybridge.planner import Plan

if TYPE_CHECKING:
    from arraybridge.adapters import Adapter


class SparseAdapter(Protocol):
    """Additional members of an adapter whose framework has sparse arrays."""

    def sparse_parts(self, array: Any, /) -> tuple[Layout, list[Any]] | None:
        """Its layout and its dense parts, without a copy. None: an array of one part, or `describe` reports why not.

        Raises:
            UnsupportedArray: a form that has no Layout.
        """

    def sparse_canonical(self, array: Any, /) -> Any:
        """A copy of compressed rows or columns with sorted indices; values of the same position are added."""

    def sparse_obstacle(self, layout: Layout, dtypes: frozenset[str], /) -> str:
        """Why the framework cannot hold these parts as they are, as "code: text"; "" if it can.

        Args:
            dtypes: those of the index parts.
        """

    def sparse_made(self, layout: Layout, parts: Sequence[Any], /) -> Any:
        """Its sparse array of these parts, which are its own arrays; rearranged if there is an obstacle."""


class Sparse(NamedTuple):
    """A sparse array of this process, taken apart."""

    array: Any
    framework: str  # of its parts
    layout: Layout
    parts: list[Any]
    rearranged: str = ""  # why the parts are not those of `array`, as "code: text"


UNSORTED: Final = "layout: the indices were not sorted, or named a position twice"


def taken_apart(array: Any) -> Sparse | None:
    """The array's layout and parts, without a copy. None: it is not a sparse array, or only its own framework can read
    it.

    Raises:
        UnsupportedArray: a form that has no Layout.
    """
    framework = sparse_framework_of(type(array))
    if framework is None:
        return None
    found = _module(framework).sparse_parts(array)
    if found is None:
        return None
    if not found[0].shape:
        reason = "a sparse array without dimensions has no indices: pass the dense one"
        raise UnsupportedArray(framework, "any", "hand_over", reason)
    return Sparse(array, "numpy" if framework == "scipy" else framework, *found)


def canonical(apart: Sparse) -> Sparse:
    """The same array with parts in the order that all frameworks expect: of a copy, if its own are not. Parts that form no
    array stay as they are, because frameworks do not check them; `check` refuses them.
    """
    if apart.layout.format == "coo":
        return apart
    starts, indices = (_on_host(source_of(part, "any").view()) for part in apart.parts[:2])
    if _defect(apart.layout, starts, indices, apart.parts[2].shape[0]) or _is_canonical(starts, indices):
        return apart
    module = _module("scipy" if apart.framework == "numpy" else apart.framework)
    try:
        layout, parts = cast("tuple[Layout, list[Any]]", module.sparse_parts(module.sparse_canonical(apart.array)))
    except Exception as error:
        raise raised_by(error, apart.framework, "any", "hand_over") from error
    return apart._replace(layout=layout, parts=parts, rearranged=UNSORTED)


def assembled(
    target: Adapter, name: str, layout: Layout, parts: Sequence[Any], source: str, copy: bool | None, rearranged: str = ""
) -> tuple[Any, Plan | None]:
    """The target's sparse array of these parts of its own, and the plan of their rearrangement; None: there was none.

    Args:
        target, name: the adapter of the framework, and its name.
        source: the origin of the parts, as errors name it.
        copy: False: forbids a rearrangement.
        rearranged: why the parts were rearranged already; "": they were not.

    Raises:
        UnsupportedArray: the target has no sparse arrays, or none of this layout.
        ZeroCopyUnavailable: `copy=False`, and the target must rearrange the parts.
    """
    adapter = cast(SparseAdapter, _module("scipy") if name == "numpy" else target)
    if not hasattr(adapter, "sparse_made"):
        raise UnsupportedArray(source, name, "hand_over", f"{name} has no sparse arrays: convert the dense one")
    chosen = None
    try:
        described = [target.describe(part) for part in parts]
        obstacle = rearranged or adapter.sparse_obstacle(layout, frozenset(each.dtype for each in described[:-1]))
        if obstacle:
            nbytes = sum(each.nbytes for each in described[:-1])
            dtype, device = described[-1].dtype, devices.named(described[-1].device)
            via = "host" if described[-1].device == devices.HOST else "d2d-copy"
            chosen = Plan(source, name, device, "place", via, 1, nbytes, False, dtype, (obstacle,))
        if chosen is not None and copy is False:
            raise ZeroCopyUnavailable(source, name, "hand_over", obstacle, chosen)
        return adapter.sparse_made(layout, parts), chosen
    except BrokerError:
        raise
    except Exception as error:
        raise raised_by(error, source, name, "hand_over") from error


def check(layout: Layout, views: Sequence[_core.View]) -> None:
    """Checks that the parts form an array of this layout. Frameworks do not check indices, and an index out of range
    reads other memory of this process.

    Raises:
        UnsupportedArray: they do not.
    """
    *indices, data = views
    if any(view.dtype_name not in ("int32", "int64") for view in indices):
        raise _refused(f"its indices are {indices[0].dtype_name}, not int32 or int64")
    values = [_on_host(view) for view in indices]
    if data.ndim != 1:
        raise _refused(f"its data has {data.ndim} dimensions, not 1")
    if layout.format == "coo":
        _check_coordinates(layout, values, data.size)
    else:
        starts, inner = values
        defect = _defect(layout, starts, inner, data.size)
        if defect or not _is_canonical(starts, inner):
            raise _refused(defect or "its indices are not sorted, or name a position twice")


def _check_coordinates(layout: Layout, values: list[Any], count: int) -> None:
    ndim = len(layout.shape)
    shape = {"apart": (count,), "by_axis": (ndim, count), "by_value": (count, ndim)}[layout.indices]
    if any(each.shape != shape for each in values):
        raise _refused(f"its indices have the shape {values[0].shape}, not {shape}")
    if layout.indices != "apart":
        values = list(values[0] if layout.indices == "by_axis" else values[0].T)
    for axis, each in enumerate(values):
        if beyond := _beyond(each, layout.shape[axis], f"axis {axis}"):
            raise _refused(beyond)
    if layout.sorted and not _is_sorted(values):
        raise _refused("its layout declares sorted indices, and they are not sorted")


def _defect(layout: Layout, starts: Any, indices: Any, count: int) -> str:
    """Why these parts form no compressed rows or columns; "": they do."""
    rows, columns = layout.shape if layout.format == "csr" else layout.shape[::-1]
    if starts.shape != (rows + 1,) or indices.shape != (count,):
        return f"its parts have the shapes {starts.shape}, {indices.shape} and ({count},)"
    if starts[0] != 0 or starts[-1] != count or (starts[1:] < starts[:-1]).any():
        return f"its indptr does not go from 0 to {count}"
    return _beyond(indices, columns, "indices")


def _on_host(view: _core.View) -> Any:
    return numpy_adapter.view(view if view.device == devices.HOST else _core.copy_to_heap(view))


def _is_canonical(starts: Any, indices: Any) -> bool:
    """True if the indices of each compressed row or column are strictly increasing."""
    rising = indices[1:] > indices[:-1]
    first = starts[(starts > 0) & (starts < len(indices))]  # of a row or column that is not the first
    rising[first - 1] = True
    return bool(rising.all())


def _beyond(values: Any, size: int, name: str) -> str:
    if values.size and not 0 <= int(values.min()) <= int(values.max()) < size:
        return f"an index of {name} is not in 0 to {size - 1}"
    return ""


def _is_sorted(coordinates: Sequence[Any]) -> bool:
    """True if the positions are strictly increasing in row-major order."""
    after: Any = False
    alike: Any = True
    for each in coordinates:
        after = after | (alike & (each[1:] > each[:-1]))
        alike = alike & (each[1:] == each[:-1])
    return bool(after.all())


def _refused(reason: str) -> UnsupportedArray:
    return UnsupportedArray("share", "any", "hand_over", f"the share's sparse array is invalid: {reason}")


@functools.cache
def _module(framework: str) -> SparseAdapter:
    # By name, as in the adapter table, because SciPy is not a target framework.
    return cast(SparseAdapter, importlib.import_module(f"arraybridge.adapters.{framework}"))
