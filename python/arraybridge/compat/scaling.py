# SPDX-License-Identifier: Apache-2.0
"""Scaling: an array's values in another dtype, by a stated rule that is the same, to the last bit, for all frameworks.

NumPy computes the result: it shares an array of another framework on the host if possible; an array on a GPU is copied
to the host and back.

    >>> arraybridge.SCALING_FUNCTIONS["numpy"](np.array([3.6]), "uint8", scaling="clip")
    array([4], dtype=uint8)
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from arraybridge import autograph, callers, planner
from arraybridge.adapters import ensure_module, named, numpy as numpy_adapter
from arraybridge.arguments import check_word
from arraybridge.arrays import devices
from arraybridge.conversion.memory import brought, device_of, values_of
from arraybridge.detect import MemoryType, detect_memory_type
from arraybridge.errors import InvalidMemoryType, UnsupportedDtype
from arraybridge.planner import CODES

Scaling = Literal["auto", "clip", "unit", "full"]
_SCALINGS: Final = get_args(Scaling)


def scale_dtype(array: Any, target_dtype: object, *, scaling: Scaling = "auto") -> Any:
    """The array's values as `target_dtype`, of the same framework, shape and device. Returns other objects unchanged.

    Args:
        array: of one of the six frameworks.
        target_dtype: a name ("uint8"), a dtype of NumPy or any of the frameworks, a class (float, numpy.uint8).
        scaling: of floating-point numbers to integers; nothing wraps, and the ends of the range are exact:
            "unit": 0 becomes the least, 1 the greatest value of the target, truncated toward zero; other values
            saturate.
            "clip": the values themselves, rounded half to even, saturated.
            "auto": "unit" if all finite values lie in [0, 1], otherwise "clip". It depends on the data: pass "clip" to
            keep values. "full": the least finite value becomes the least, the greatest the greatest.
            NaN becomes 0, an infinity the end of the range on its side, with one RuntimeWarning.

    Between integers, values are kept and saturate; to and from bool, and to floating point, it is a plain cast.

    Raises:
        UnsupportedDtype: not a dtype, not one of this framework, or complex numbers to real ones.
        InvalidRequest: there is no such scaling. MemoryConversionError: the array cannot be read.

    Example:
        >>> arraybridge.scale_dtype(np.array([0.0, 0.5, 1.0]), "uint8")
        array([  0, 127, 255], dtype=uint8)
        >>> arraybridge.SCALING_FUNCTIONS["numpy"](np.array([3.6]), "uint8", scaling="clip")
        array([4], dtype=uint8)
    """
    check_word(scaling, "scaling", _SCALINGS)
    memory_type = detect_memory_type(array)
    if memory_type is None:
        return array
    if _is(array.dtype, target_dtype):
        return array
    name = _dtype_name(target_dtype, memory_type)
    if _dtype_name(array.dtype, memory_type) == name:
        return array
    if not has_dtype(memory_type, name):
        raise _without(name, memory_type, memory_type)
    values = values_of(array, memory_type)
    result = _scaled(values, numpy_adapter.dtype_of(name), scaling, memory_type)
    return brought(result, memory_type, device_of(array))


def has_dtype(memory_type: str, dtype: object) -> bool:
    """True if this framework, in its present configuration, has arrays of the dtype."""
    caps = named(memory_type).caps()
    name = planner.dtype_name(dtype)
    return name not in caps.narrows and (caps.takes(name) or name in caps.by_value)


def _is(dtype: Any, other: object) -> bool:
    # Dtypes without a name of their own, such as structured ones, can only be compared.
    return type(dtype) is type(other) and bool(dtype == other)


def _scaled_to(memory_type: str, array: Any, target_dtype: object, scaling: Scaling) -> Any:
    """An ndarray's values as an array of a framework without arrays on the host: on its first device."""
    name = _dtype_name(target_dtype, memory_type)
    if not has_dtype(memory_type, name):
        raise _without(name, "numpy", memory_type)
    return brought(scale_dtype(array, name, scaling=scaling), memory_type, None)


def _of(memory_type: MemoryType) -> Callable[..., Any]:
    def scale(array: Any, target_dtype: object, *, scaling: Scaling = "auto") -> Any:
        found = detect_memory_type(array)
        if found == "numpy" and devices.CPU not in named(memory_type).caps().devices:
            return _scaled_to(memory_type, array, target_dtype, scaling)
        if found is not None and found != memory_type:
            raise InvalidMemoryType(found, memory_type, "scale", f"the array is {found}, not {memory_type}: use scale_dtype")
        return scale_dtype(array, target_dtype, scaling=scaling)

    scale.__name__ = scale.__qualname__ = f"scale_{memory_type}"
    scale.__doc__ = (
        f"scale_dtype of {memory_type.value} arrays; for a framework without arrays on the host (pyclesperanto, CuPy) also an\n"
        "ndarray, whose values are copied to its first device."
    )
    return autograph.unconverted(scale)


SCALING_FUNCTIONS: Final = MappingProxyType({each.value: _of(each) for each in MemoryType})


def _without(name: str, source: str, memory_type: str) -> UnsupportedDtype:
    reason = f"{memory_type} has no dtype {name} in its present configuration: scale to another dtype, or an ndarray"
    return UnsupportedDtype(source, memory_type, "scale", reason)


def _dtype_name(dtype: object, memory_type: str) -> str:
    name = planner.dtype_name(dtype)
    if name not in CODES and dtype is not None:  # None, of which NumPy makes float64, is excluded
        np = ensure_module("numpy")
        try:
            name = np.dtype(dtype).name
        except (TypeError, ValueError):
            pass
    if name not in CODES:
        reason = f"not a numeric dtype: {dtype!r}; use a name such as 'uint8' or 'float32'"
        raise UnsupportedDtype(memory_type, memory_type, "scale", reason)
    return name


def _scaled(values: Any, dtype: Any, scaling: str, memory_type: str) -> Any:
    """A new ndarray of this dtype."""
    np = ensure_module("numpy")
    kind = values.dtype.kind
    if kind == "c" and dtype.kind != "c":
        reason = f"{values.dtype} to {dtype} would drop the imaginary part: use .real or abs()"
        raise UnsupportedDtype(memory_type, memory_type, "scale", reason)
    if dtype.kind not in "iu" or kind == "b":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    if kind in "iu":
        own = np.iinfo(values.dtype)
        # NumPy turns a result without dimensions into a scalar.
        return np.asarray(values.clip(max(own.min, limits.min), min(own.max, limits.max))).astype(dtype)
    # float64 holds every value of the smaller floating-point types.
    numbers = values.astype(np.float64)
    finite = np.isfinite(numbers)
    if not finite.all():
        callers.warn("NaN became 0, infinities the range's ends", RuntimeWarning)
    numbers = _stretched(numbers, finite, scaling, limits)
    return _saturated(np.where(np.isnan(numbers), 0.0, numbers), dtype, limits)


def _stretched(numbers: Any, finite: Any, scaling: str, limits: Any) -> Any:
    """The scaled numbers, before truncation and saturation."""
    np = ensure_module("numpy")
    if scaling == "auto":
        inside = ((numbers >= 0) & (numbers <= 1)) | ~finite
        scaling = "unit" if inside.all() else "clip"
    if scaling == "clip":
        return np.rint(numbers)
    if scaling == "full" and finite.any():
        least, greatest = numbers[finite].min(), numbers[finite].max()
        # Halved, because the difference of two finite numbers can overflow.
        span = greatest / 2 - least / 2
        numbers = (numbers / 2 - least / 2) / (span or 1.0)
    least, greatest = float(limits.min), float(limits.max)
    stretched = least + numbers * (greatest - least)
    # Rounding must not move the ends.
    return np.trunc(np.where(numbers >= 1, np.inf, np.where(numbers <= 0, -np.inf, stretched)))


def _saturated(numbers: Any, dtype: Any, limits: Any) -> Any:
    np = ensure_module("numpy")
    # float(limits.max) of 64 bits is one more than the greatest value, so values that reach it saturate.
    above, below = numbers >= float(limits.max), numbers <= float(limits.min)
    result = np.where(above | below, 0.0, numbers).astype(dtype)
    result[above] = limits.max
    result[below] = limits.min
    return result


autograph.mark_module(__name__)
