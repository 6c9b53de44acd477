"""The owner of an array's bytes: whether something may still write to them, which the array's own read-only flag cannot say.

A read-only view of a writable array changes with it. So the chain of bases is followed to the object that has the memory.
"""

from __future__ import annotations

import array
import mmap
import sys
from typing import Any, Final, NamedTuple

from arraybridge import _core
from arraybridge.classes import memory_type_of

_CHAIN_MAX: Final = 64  # NumPy makes chains of two; objects of users may make rings
_CONSTANT: Final = ("jax", "tensorflow")  # memory types whose arrays have one value as long as they live


class Owner(NamedTuple):
    """What is known of the object that has the bytes."""

    may_change: str  # why the bytes may change, as errors and plans say it; "": nothing writes to them any more
    share: _core.View | None = None  # the View of a share in whose memory they lie


def owner_of(source: Any) -> Owner:
    """The owner of a read-only array's bytes: of an ndarray, a memoryview, bytes, a View, or an object of an array protocol.

    What its owner does not say is taken to change. An ndarray that has its own memory and is read-only counts as constant:
    that flag is its owner's word, and a view of it that was made while it was writable takes that word back.
    """
    ndarray = _ndarray()
    for _ in range(_CHAIN_MAX):
        if isinstance(source, ndarray):
            if source.flags.writeable:
                return Owner("it is a view of an ndarray that can be written")
            if source.base is None:
                return Owner("" if source.flags.owndata else "its memory has no owner that NumPy knows")
            source = source.base
        elif isinstance(source, memoryview):
            if not source.readonly:
                return Owner("it is a view of a memoryview that can be written")
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
        return Owner(f"it is a view of a {kind.__name__}, which can be written")
    if isinstance(owner, mmap.mmap):
        return Owner("it is a view of a mapped file, which other processes may write to")
    # TensorFlow's own ndarrays have a part of it as their base.
    if memory_type_of(kind) in _CONSTANT or kind.__name__ == "tensorflow_wrapper":
        return Owner("")
    view = owner if isinstance(owner, _core.View) else _core.exported(owner)
    if view is not None and view.constant:
        return Owner("", view)
    return Owner(f"its owner ({kind.__name__}) does not say whether something writes to it")
