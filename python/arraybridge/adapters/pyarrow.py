# SPDX-License-Identifier: Apache-2.0
"""PyArrow: immutable one-dimensional arrays without nulls, tensors of any rank, and arrays of tensors of one shape. Booleans
are bits, so they are copied.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from arraybridge.adapters import ensure_module, numpy as numpy_adapter
from arraybridge.errors import UnsupportedArray
from arraybridge.planner import Caps, Description, dtype_refused

if TYPE_CHECKING:
    from arraybridge._core import View

_NUMBERS: Final = frozenset(f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)) | {
    "float16",
    "float32",
    "float64",
}
CAPS: Final = Caps(
    name="pyarrow",
    layout="compact_c",
    align_bytes=0,
    ndim_min=1,
    ndim_max=32,
    read_only="immutable",
    private=False,
    dtypes=_NUMBERS,
    by_value=frozenset({"bool"}),
    in_one_dimension=frozenset({"bool"}),  # a Tensor would turn them into numbers
)

# PyArrow shares the memory of an ndarray without a copy, and its buffers do not report it.
MAY_CHANGE: Final = "PyArrow does not report whether a writable ndarray shares its memory"


def caps() -> Caps:
    _pyarrow()
    return CAPS


def describe(array: Any) -> Description:
    pyarrow = _pyarrow()
    types = pyarrow.types
    if isinstance(array, pyarrow.FixedShapeTensorArray):
        _refuse_nulls(array)
        return describe(array.to_tensor())
    if not (types.is_integer(array.type) or types.is_floating(array.type) or types.is_boolean(array.type)):
        raise dtype_refused("pyarrow", str(array.type), "cast it to numbers, or put text as a list beside an array (to_pylist)")
    if isinstance(array, pyarrow.Tensor):
        return _described(array)
    _refuse_nulls(array)
    obstacle = _obstacle(array)
    if not obstacle:
        return _described(array)
    values = array.to_numpy() if isinstance(array, pyarrow.ChunkedArray) else array.to_numpy(zero_copy_only=False)
    return replace(
        numpy_adapter.described(values),
        framework="pyarrow",
        read_only=True,
        obstacles=(obstacle,),
        fill=numpy_adapter.filler(values),
    )


def _refuse_nulls(array: Any) -> None:
    if array.null_count:
        way_out = "drop_null" if isinstance(array, _pyarrow().FixedShapeTensorArray) else "fill_null"
        reason = f"{array.null_count} nulls would be lost: call {way_out} first"
        raise UnsupportedArray("pyarrow", "any", "hand_over", reason)


def _described(array: Any) -> Description:
    return replace(numpy_adapter.described(_alias(array), MAY_CHANGE), framework="pyarrow")


def export(array: Any) -> View:
    return numpy_adapter.export(_alias(array))


def view(view: View) -> Any:
    """An Array for one dimension, a Tensor for more."""
    pyarrow = _pyarrow()
    values = numpy_adapter.view(view)
    return pyarrow.array(values) if view.ndim == 1 else pyarrow.Tensor.from_numpy(values)


@functools.cache
def _pyarrow() -> Any:
    # Imports once instead of reading sys.modules, where another thread's import may be incomplete.
    return ensure_module("pyarrow")


def _obstacle(array: Any) -> str:
    pyarrow = _pyarrow()
    if isinstance(array, pyarrow.ChunkedArray) and array.num_chunks != 1:
        return f"layout: {array.num_chunks} chunks"
    return "layout: booleans are single bits" if pyarrow.types.is_boolean(array.type) else ""


def _alias(array: Any) -> Any:
    if isinstance(array, _pyarrow().ChunkedArray):
        array = array.chunk(0)
    if isinstance(array, _pyarrow().FixedShapeTensorArray):
        array = array.to_tensor()
    values = array.to_numpy() if isinstance(array, _pyarrow().Tensor) else array.to_numpy(zero_copy_only=True)
    return numpy_adapter.frozen(values)
