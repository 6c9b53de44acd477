# SPDX-License-Identifier: Apache-2.0
"""Progress of large copies: a caller's function is called with (bytes done, total bytes) around and during a copy.

Copies on the host are made in pieces of PIECE bytes for that; a copy by a framework or a driver is one piece. An
exception of the function ends the copy and reaches the caller; the placement is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from arraybridge import _core
from arraybridge.adapters import numpy as numpy_adapter

Progress = Callable[[int, int], object]
PIECE: Final = 64 << 20


class Meter:
    """Counts the bytes of several copies."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        progress(0, total)

    def moved(self, nbytes: int) -> None:
        self._done += nbytes
        self._progress(self._done, self._total)


def copy(source: _core.View, destination: _core.View, meter: Meter) -> None:
    """Copies the values of `source` into `destination`, a View of its shape and dtype; both on the host."""
    target, values = numpy_adapter.bits_of(destination), numpy_adapter.bits_of(source)
    if not destination.nbytes:
        return
    for piece in _pieces(destination.shape, destination.nbytes):
        target[piece] = values[piece]
        meter.moved(target[piece].nbytes)


def _pieces(shape: tuple[int, ...], nbytes: int) -> Iterator[Any]:
    """Index expressions that together cover the array: rows of its first long dimension, in pieces of PIECE bytes."""
    axis = next((axis for axis, size in enumerate(shape) if size > 1), None)
    if axis is None or nbytes <= PIECE:
        yield ...
        return
    rows = max(1, PIECE // (nbytes // shape[axis]))
    for start in range(0, shape[axis], rows):
        yield (*(slice(None),) * axis, slice(start, start + rows))
