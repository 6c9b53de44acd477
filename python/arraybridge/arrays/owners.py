# SPDX-License-Identifier: Apache-2.0
"""The owner of an array's bytes, and whether it may still write them, which the array's own read-only flag does not
tell.

A read-only view of a writable array changes with it. So the chain of bases is followed to the owner of the memory.
"""

from __future__ import annotations

import array
import mmap
import sys
from typing import Any, Final, NamedTuple

from arraybridge import _core
from arraybridge.arrays.classes import memory_type_of

_CHAIN_MAX: Final = 64  # NumPy makes chains of two; objects of users may be cyclic
_CONSTANT: Final = ("jax", "tensorflow")  # memory types whose arrays never change their value


class Owner(NamedTuple):
    """Knowledge about the owner of the bytes."""

    may_change: str  # why the bytes may change, for errors and plans; "": no process writes them any more
    share: _core.View | None = None  # the View of a share whose memory contains them


def owner_of(source: Any) -> Owner:
    """The owner of a read-only array's bytes: of an ndarray, a memoryview, bytes, a View, or an object with an array
    protocol.

    If the owner is unknown, the bytes are assumed to change. A read-only ndarray with memory of its own counts as
    constant, because its owner has set the flag; a view that was made while it was writable contradicts the flag.
    """
    ndarray = _ndarray()
    for _ in range(_CHAIN_MAX):
        if isinstance(source, ndarray):
            if source.flags.writeable:
                return Owner("it is a view of a writable ndarray")
            if source.base is None:
                return Owner("" if source.flags.owndata else "NumPy does not know the owner of its memory")
            source = source.base
        elif isinstance(source, memoryview):
            if not source.readonly:
                return Owner("it is a view of a writable memoryview")
            source = source.obj
        else:
            break
    return _foreign(source)


def _ndarray() -> Any:
    numpy = sys.modules.get("numpy")
    return () if numpy is None else (numpy.ndarray,)


def _foreign(owner: Any) -> Owner:
    kind = type(owner)
    if isinstance(owner, bytes) or any(base.__name__ == "generic" and base.__module__ == "numpy" for base in kind.__mro__):
        return Owner("")
    if isinstance(owner, (bytearray, array.array)):
        return Owner(f"it is a view of a {kind.__name__}, which is writable")
    if isinstance(owner, mmap.mmap):
        return Owner("it is a view of a mapped file, which other processes may write")
    # TensorFlow's own ndarrays have one of its objects as their base.
    if memory_type_of(kind) in _CONSTANT or kind.__name__ == "tensorflow_wrapper":
        return Owner("")
    view = owner if isinstance(owner, _core.View) else _core.exported(owner)
    if view is not None and view.constant:
        return Owner("", view)
    return Owner(f"its owner ({kind.__name__}) does not report whether its memory is written")
