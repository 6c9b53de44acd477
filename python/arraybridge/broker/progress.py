"""How far a large move is: a caller's function is told (bytes done, bytes in all) before, during and after it.

Moves on the host are made in pieces of PIECE bytes for that; what a framework or a driver copies is one piece. An
exception from the function ends the move and reaches the caller; what was placed goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from arraybridge import _core
from arraybridge.adapters import numpy as numpy_adapter

Progress = Callable[[int, int], object]
PIECE: Final = 64 << 20


class Meter:
    """Counts the bytes of several moves."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        progress(0, total)

    def moved(self, nbytes: int) -> None:
        self._done += nbytes
        self._progress(self._done, self._total)


def copy(source: _core.View, room: _core.View, meter: Meter) -> None:
    """Writes the values of `source` into `room`, a View of its shape and dtype; both on the host."""
    target, values = numpy_adapter.bits_of(room), numpy_adapter.bits_of(source)
    if not room.nbytes:
        return
    for piece in _pieces(room.shape, room.nbytes):
        target[piece] = values[piece]
        meter.moved(target[piece].nbytes)


def _pieces(shape: tuple[int, ...], nbytes: int) -> Iterator[Any]:
    """Index expressions that together are the array: as many rows of its first long dimension as PIECE bytes hold."""
    axis = next((axis for axis, size in enumerate(shape) if size > 1), None)
    if axis is None or nbytes <= PIECE:
        yield ...
        return
    rows = max(1, PIECE // (nbytes // shape[axis]))
    for start in range(0, shape[axis], rows):
        yield (*(slice(None),) * axis, slice(start, start + rows))
