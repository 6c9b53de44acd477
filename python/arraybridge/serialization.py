"""Arrays as bytes for pipes and files, and back: `to_bytes` and `from_bytes`. `arraybridge.convert.byte_format` documents the
format, which is safetensors' of one tensor."""

from __future__ import annotations

from typing import Any

from arraybridge import autograph
from arraybridge.classes import memory_type_named
from arraybridge.convert.byte_format import bytes_of, view_of
from arraybridge.convert.memory import converted
from arraybridge.convert.source import source_of


def to_bytes(array: Any) -> bytes:
    """The array's values, dtype and shape as bytes, in the format above. Of every dtype that conversions know, structured ones
    and datetimes of NumPy's too; strides become compact and byte order this machine's.

    Args:
        array: of any framework and device, a Share, or whatever `asdlpack` accepts.

    Raises:
        UnsupportedArray, UnsupportedDtype: nobody could read it.
        InvalidRequest: its structured dtype takes a header of more than HEADER_BYTES_MAX.
    """
    return bytes_of(source_of(array, "bytes"))


def from_bytes(
    data: Any, framework: str = "numpy", gpu_id: int | None = None, *, copy: bool | None = None,
    allow_downcast: bool = False,
) -> Any:  # fmt: skip
    """The array in bytes that `to_bytes` made, or safetensors of one tensor. Nothing in them is executed.

    Args:
        data: an object with the buffer protocol, all of it.
        framework, gpu_id: as convert_memory takes `target_type` and `gpu_id`; None: the CPU.
        copy, allow_downcast: as convert_memory takes them. Where `copy` is no True, an array of NumPy's lies in `data` itself,
            and is read-only if that is.

    Raises:
        InvalidRequest: (a ValueError) they are no such bytes; the message says what is wrong.
        InvalidMemoryType: (a ValueError) no framework has this name. What convert_memory raises.
    """
    return converted(view_of(data), None, memory_type_named(framework, "bytes"), gpu_id, copy, allow_downcast)


autograph.mark_module(__name__)
