# SPDX-License-Identifier: Apache-2.0
"""Whether a put copied: a raw write into the array's memory is seen by readers, or is not."""

import ctypes
import itertools
from typing import Any

import numpy as np

_NAMES = itertools.count()


def is_put_in_place(broker: Any, array: np.ndarray[Any, Any]) -> bool:
    """Puts the array, and changes its first byte behind NumPy's back."""
    name = f"array-{next(_NAMES)}"
    before = array.tobytes()
    broker.put(array, name)
    got = broker.get(name)
    assert got.tobytes() == before and got.shape == array.shape and got.dtype == array.dtype
    changed = bytes([before[0] ^ 0xFF])
    ctypes.memmove(array.ctypes.data, changed, 1)
    seen = got.tobytes()[:1] == changed
    ctypes.memmove(array.ctypes.data, before[:1], 1)
    assert seen == (not array.flags.writeable), "an array that became a share is read-only"
    return seen


def is_memory_put_in_place(broker: Any, array: Any, address: int) -> bool:
    """The same of an array of any framework, whose first byte lies at this address."""
    name = f"array-{next(_NAMES)}"
    before = ctypes.string_at(address, 1)
    broker.put(array, name, replace=True)  # a forked child counts the same names
    got = broker.get(name, "numpy")
    assert got.tobytes()[:1] == before
    ctypes.memmove(address, bytes([before[0] ^ 0xFF]), 1)
    seen: bool = got.tobytes()[:1] != before
    ctypes.memmove(address, before, 1)
    broker.withdraw(name)
    return seen
