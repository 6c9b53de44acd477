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


def values_of(array: Any) -> Any:
    """What an array of any framework holds, as NumPy's."""
    import torch

    return array.numpy() if isinstance(array, torch.Tensor) else np.asarray(array)
