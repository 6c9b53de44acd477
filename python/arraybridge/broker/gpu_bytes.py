# SPDX-License-Identifier: Apache-2.0
"""GpuBytes are the bytes of an array on a GPU, which are written from host memory piece by piece."""

from __future__ import annotations

from collections.abc import Sequence

from arraybridge import _core, autograph
from arraybridge.errors import raised_by


class GpuBytes:
    """Writable bytes on a GPU. A slice of it is a part of them, as of a memoryview of bytes. Thread-safe.

    Args:
        room: compact and writable, on a GPU; it is kept.
    """

    __slots__ = ("_address", "_count", "_view")

    def __init__(self, view: _core.View) -> None:
        self._view, self._address, self._count = view, view.address, view.nbytes

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, part: slice) -> GpuBytes:
        start, stop, step = part.indices(self._count)
        if step != 1:
            raise ValueError(f"the bytes of a GPU have no slices of step {step}")
        made = GpuBytes(self._view)
        made._address, made._count = self._address + start, max(0, stop - start)
        return made

    def __setitem__(self, part: slice, values: memoryview) -> None:
        write([self[part]], values)

    def view(self) -> _core.View:
        """The same bytes as an array of uint8. REQUIRES: there are some."""
        described = {
            "shape": (self._count,), "typestr": "|u1", "data": (self._address, False), "version": 3, "strides": None, "stream": None,
        }  # fmt: skip
        return _core.wrap_cuda_array_interface(described, self._view)


def write(destinations: Sequence[GpuBytes], values: memoryview) -> None:
    """Copies bytes of host memory into these destinations, one after the other. Complete on return.

    Raises:
        ValueError: there are more values or fewer than the destinations have bytes. MemoryConversionError: the driver fails.
    """
    if len(values) != sum(map(len, destinations)):
        raise ValueError(f"{len(values)} bytes for rooms of {sum(map(len, destinations))}")
    sources, targets, start = list[_core.View](), list[_core.View](), 0
    for destination in destinations:
        if len(destination):
            sources.append(_core.wrap_buffer(values[start : start + len(destination)]))
            targets.append(destination.view())
        start += len(destination)
    try:
        _core.copy_to_gpus(sources, targets)
    except BufferError as error:
        raise raised_by(error, "bytes", "bundle", "place") from error


autograph.mark_module(__name__)
