# SPDX-License-Identifier: Apache-2.0
"""Arrays as bytes for pipes and files, and back: `to_bytes` and `from_bytes`. `arraybridge.conversion.byte_format` documents the
format, which is safetensors' of one tensor."""

from __future__ import annotations

from typing import Any

from arraybridge import autograph
from arraybridge.arrays.classes import memory_type_named
from arraybridge.conversion.byte_format import bytes_of, view_of
from arraybridge.conversion.memory import converted
from arraybridge.conversion.source import source_of


def to_bytes(array: Any) -> bytes:
    """The array's values, dtype and shape as bytes, in the format above. Supports every dtype that conversions support,
    also NumPy's structured ones and datetimes; strides become compact and the byte order this machine's.

    Args:
        array: of any framework and device, a Share, or any object that `asdlpack` accepts.

    Raises:
        UnsupportedArray, UnsupportedDtype: no framework could read it.
        InvalidRequest: its structured dtype needs a header of more than HEADER_BYTES_MAX.

    Example:
        >>> data = arraybridge.to_bytes(np.arange(3))
        >>> arraybridge.from_bytes(data, "torch")
        tensor([0, 1, 2])
    """
    return bytes_of(source_of(array, "bytes"))


def from_bytes(
    data: Any, framework: str = "numpy", gpu_id: int | None = None, *, copy: bool | None = None,
    allow_downcast: bool = False,
) -> Any:  # fmt: skip
    """The array in bytes from `to_bytes`, or from safetensors of one tensor. Executes nothing in them.

    Args:
        data: an object with the buffer protocol, which contains nothing else.
        framework, gpu_id: as `target_type` and `gpu_id` of convert_memory; None: the CPU.
        copy, allow_downcast: as in convert_memory. Unless `copy` is True, a NumPy array lies in `data` itself, and is
            read-only if that is.

    Raises:
        InvalidRequest: (a ValueError) the bytes are not in this format; the message names the defect.
        InvalidMemoryType: (a ValueError) there is no such framework. Other errors of convert_memory.

    Example:
        >>> arraybridge.from_bytes(arraybridge.to_bytes(np.ones((2, 3)))).shape
        (2, 3)
    """
    return converted(view_of(data), None, memory_type_named(framework, "bytes"), gpu_id, copy, allow_downcast)


autograph.mark_module(__name__)
