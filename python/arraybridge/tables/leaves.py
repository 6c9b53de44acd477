# SPDX-License-Identifier: Apache-2.0
"""Leaves of a tree whose values a function writes, straight into the memory where they are wanted: joined chunks of a table,
data of files and of arrays that only their library can read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.planner import Description


class Written:
    """An array whose values `write(ndarray)` writes into a writable array of this dtype and shape, once for each copy."""

    __slots__ = ("dtype", "reason", "shape", "source", "write")

    def __init__(self, dtype: Any, shape: Sequence[int], write: Callable[[Any], None], reason: str, source: str = "table") -> None:
        self.dtype: Final = dtype  # a name, or a dtype of NumPy
        self.shape: Final = tuple(shape)
        self.write: Final = write
        self.reason: Final = reason  # why it is copied, as "code: text"
        self.source: Final = source  # the library that it comes from, in plans and errors

    def described(self) -> Description:
        """The array in the planner's terms."""
        name, code, more = numpy_adapter.traveling(self.dtype)

        def fill(target: Any) -> None:
            self.write(numpy_adapter.view(target))

        return Description(
            self.source, name, code, (*self.shape, *more), None, 0, True, obstacles=(self.reason,), fill=fill
        )  # fmt: skip


def array_of(leaf: Any) -> Any:
    """A leaf of a table as an ndarray."""
    if not isinstance(leaf, Written):
        return leaf
    made = numpy_adapter.module().empty(leaf.shape, leaf.dtype)
    leaf.write(made)
    return made
