# SPDX-License-Identifier: Apache-2.0
"""Uploads are copies of host arrays to GPUs that are executed together: small ones share pinned memory, and all copies
to one GPU need one wait. The results exist before the copies, so a tree is walked as if each array were copied alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arraybridge import _core
from arraybridge.arrays import devices

if TYPE_CHECKING:
    from arraybridge.adapters import MemoryAdapter


class Uploads:
    """Copies that are recorded and not yet executed. Used by one call; not thread-safe."""

    def __init__(self) -> None:
        self._sources: list[_core.View] = []
        self._destinations: list[_core.View] = []

    def add(self, source: _core.View, destination: _core.View) -> None:
        """Records a copy of host memory into compact memory of a GPU, of the same shape and dtype."""
        self._sources.append(source)
        self._destinations.append(destination)

    def array(self, source: _core.View, target: MemoryAdapter, number: int) -> Any:
        """An array of `target` on GPU `number` that will have these values: in memory that its framework allocates, if
        that memory is writable; otherwise the framework's own copy, which is made at once.
        """
        found: Callable[[_core.View, int], Any] | None = getattr(target, "empty_like", None)
        if source.device != devices.HOST or found is None:
            compact = source if source.device != devices.HOST or source.compact else _core.copy_to_heap(source)
            return target.uploaded(compact, number)
        made = found(source, number)
        self.add(source, target.export(made))
        return made

    def make(self) -> None:
        """Executes the copies. Their results must not be read before.

        Raises:
            BufferError: the driver failed, or a stream of the copies is being captured into a graph.
        """
        sources, destinations = self._sources, self._destinations
        self._sources, self._destinations = [], []
        if sources:
            _core.copy_to_gpus(sources, destinations)
