"""The array API standard's functions for an array of any framework, through the array-api-compat package."""

from __future__ import annotations

from typing import Any

from arraybridge.adapters import ensure_module
from arraybridge.detect import detect_memory_type
from arraybridge.errors import UnsupportedArray


def array_namespace(*arrays: Any) -> Any:
    """The namespace of the array API standard that these arrays belong to: `array_namespace(x).sum(x)`.

    Args:
        arrays: of one framework: NumPy, CuPy, torch, JAX, or another one that array-api-compat knows.

    Raises:
        FrameworkNotAvailable: array-api-compat is not installed (the extra "array-api").
        UnsupportedArray: (a TypeError) no array, arrays of several frameworks, or of one without such a namespace
            (TensorFlow, pyclesperanto).
    """
    compat = ensure_module("array_api_compat")
    try:
        return compat.array_namespace(*arrays)
    except (TypeError, ValueError) as error:
        kinds = sorted({detect_memory_type(each) or type(each).__name__ for each in arrays})
        raise UnsupportedArray(", ".join(kinds) or "nothing", "any", "detect", str(error)) from error
