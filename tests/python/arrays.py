# SPDX-License-Identifier: Apache-2.0
"""Arrays that several files of tests make."""

import math
from typing import Any

import numpy as np


def aligned(shape: tuple[int, ...] = (4, 4), dtype: Any = "float32") -> np.ndarray[Any, Any]:
    """0, 1, 2, ... at an address that is a multiple of 64, which every framework takes."""
    count = math.prod(shape)
    nbytes = count * np.dtype(dtype).itemsize
    memory = np.zeros(nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    made = memory[start : start + nbytes].view(dtype).reshape(shape)
    made[...] = np.arange(count).reshape(shape)
    return made


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same array, which nothing can write any more: neither it nor the owner of its memory."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner.flags.writeable = False
        owner = owner.base
    return array


def values_of(array: Any) -> Any:
    """What an array of any framework holds, as NumPy's."""
    import torch

    return array.numpy() if isinstance(array, torch.Tensor) else np.asarray(array)


def bits_of(array: np.ndarray[Any, Any]) -> bytes:
    """Every bit of its values, in row-major order."""
    return np.ascontiguousarray(array).tobytes()


def address_of(array: Any) -> int | None:
    """Where an array's own memory is, by its framework's own word; None: it tells nobody."""
    import pyarrow
    import tensorflow as tf
    import torch

    from arraybridge import asdlpack

    if isinstance(array, torch.Tensor):
        return int(array.data_ptr())
    if isinstance(array, tf.Tensor):
        if not array.dtype.name.startswith("float8"):
            return asdlpack(tf.experimental.dlpack.to_dlpack(array)).address
        return int(array.__array__().__array_interface__["data"][0]) if array.shape.rank else None
    if isinstance(array, pyarrow.Array):
        return None if pyarrow.types.is_boolean(array.type) else int(array.buffers()[1].address + array.offset * array.type.bit_width // 8)
    if isinstance(array, pyarrow.Tensor):
        array = array.to_numpy()
    elif not isinstance(array, np.ndarray):
        return int(array.unsafe_buffer_pointer())
    return int(array.__array_interface__["data"][0])
