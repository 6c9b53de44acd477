# SPDX-License-Identifier: Apache-2.0
"""The array API standard's functions for an array of any framework, through the array-api-compat package."""

from __future__ import annotations

import functools
from typing import Any

from arraybridge import autograph
from arraybridge._core import View, copy_to_heap
from arraybridge.adapters import ensure_module
from arraybridge.arrays.classes import detect_memory_type
from arraybridge.arrays.devices import CPU, HOST, named
from arraybridge.errors import FrameworkNotAvailable, UnsupportedArray
from arraybridge.planner import CODES, COMMON


def array_namespace(*arrays: Any) -> Any:
    """The namespace of the array API standard that these arrays belong to: `array_namespace(x).sum(x)`.

    Args:
        arrays: of one framework: NumPy, CuPy, torch, JAX, or another one that array-api-compat knows.

    Raises:
        FrameworkNotAvailable: array-api-compat is not installed (the extra "array-api").
        UnsupportedArray: (a TypeError) not an array, arrays of several frameworks, or of one without such a namespace
            (TensorFlow, pyclesperanto).

    Example:
        >>> arrays = np.ones(3), np.zeros(3)
        >>> arraybridge.array_namespace(*arrays).concat(arrays).shape
        (6,)
    """
    compat = ensure_module("array_api_compat")
    try:
        return compat.array_namespace(*arrays)
    except (TypeError, ValueError) as error:
        kinds = sorted({detect_memory_type(each) or type(each).__name__ for each in arrays})
        raise UnsupportedArray(", ".join(kinds) or "nothing", "any", "detect", str(error)) from error


def namespace_of(array: Any, api_version: str | None = None) -> Any:
    """The namespace of a View or a Share: array_api_compat.numpy if it is installed, so that they can be combined with
    arrays, otherwise numpy. Functions of both read them by the array interface.

    Raises:
        UnsupportedArray: (a TypeError) memory of a GPU.
        ValueError: NumPy does not support this version of the standard.
    """
    if array.device[0] != CPU:
        reason = f"memory of {named(array.device)} has no functions of its own: convert it to a framework's array first"
        raise UnsupportedArray(type(array).__name__, "any", "detect", reason)
    numpy = ensure_module("numpy")
    own = getattr(numpy.ndarray, "__array_namespace__", None)  # NumPy 2.1
    found = numpy if own is None else own(numpy.empty(0), api_version=api_version)
    try:
        return ensure_module("array_api_compat.numpy")
    except FrameworkNotAvailable:
        return found


def to_device(array: Any, device: object, stream: object = None) -> Any:
    """A View or a Share on a device, as the standard's method of this name.

    Args:
        device: its own (`array.device`, "cpu", "cuda:0"), for the array itself; or the host, for a View of a copy.
        stream: ignored: the copy is complete.

    Raises:
        UnsupportedArray: (a TypeError) another device.
    """
    if device in (array.device, named(array.device)):
        return array
    if device in (HOST, named(HOST)):
        return copy_to_heap(array if isinstance(array, View) else array.view())
    kind, where = type(array).__name__, named(device) if isinstance(device, tuple) else device
    way_out = f"get or convert it as an array of a framework, with device={where!r}"
    raise UnsupportedArray(kind, "any", "device", f"a {kind} on {named(array.device)} has no copy on {where}: {way_out}")


@functools.lru_cache(maxsize=64)
def dtype_of(name: str) -> Any:
    """NumPy's dtype of a logical name, or that of ml_dtypes if NumPy has none; otherwise the name itself."""
    if name not in CODES:
        return name
    try:
        numpy = ensure_module("numpy")
        return numpy.dtype(name if name in COMMON else getattr(ensure_module("ml_dtypes"), name))
    except (FrameworkNotAvailable, AttributeError):
        return name


autograph.mark_module(__name__)
