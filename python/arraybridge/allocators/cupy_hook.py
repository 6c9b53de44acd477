# SPDX-License-Identifier: Apache-2.0
"""CuPy's allocator: below its own memory pool, so that CuPy frees each array's block when the array is gone."""

from __future__ import annotations

import contextlib
from typing import Any

from arraybridge.adapters import ensure_module
from arraybridge.allocators.pool import Order, Pool
from arraybridge.errors import OutOfMemory

_PER_THREAD = 2  # the handle of each thread's default stream


class CupyHook(contextlib.ExitStack):
    """While it is entered, CuPy allocates in the pool, if the pool's GPU is the current one.

    Args:
        everywhere: in all threads; otherwise in the thread that entered it.
    """

    def __init__(self, pool: Pool, min_bytes: int, everywhere: bool) -> None:
        super().__init__()
        self._pool, self._min_bytes, self._everywhere = pool, min_bytes, everywhere
        self._cuda: Any = ensure_module("cupy").cuda
        pool.users.append(self)
        self._own = self._cuda.PythonFunctionAllocator(self._malloc, self._free)

    def __enter__(self) -> CupyHook:
        super().__enter__()
        self._before = self._cuda.get_allocator()
        if self._everywhere:
            self._cuda.set_allocator(self._allocate)
            self.callback(self._cuda.set_allocator, self._before)
        else:
            self.enter_context(self._cuda.using_allocator(self._allocate))
        return self

    def _allocate(self, nbytes: int) -> Any:
        if nbytes >= self._min_bytes and self._cuda.Device().id == self._pool.ordinal:
            memory = self._own.malloc(nbytes)
            if memory.ptr:
                return memory
        return self._before(nbytes)

    def _malloc(self, nbytes: int, device: int) -> int:
        try:
            return self._pool.allocate(nbytes, self._order())
        except OutOfMemory as refusal:
            raise self._cuda.memory.OutOfMemoryError(nbytes, self._pool.taken_bytes) from refusal

    def _free(self, address: int, device: int) -> None:
        if not self._pool.ended:
            self._pool.free(address, self._order())

    def _order(self) -> Order | None:
        stream = self._cuda.get_current_stream()
        # A stream of another library may end, and its handle be another stream's, while its blocks are kept.
        ordered = type(stream) is self._cuda.Stream and stream.ptr != _PER_THREAD
        return Order(stream.ptr, stream) if ordered else None
