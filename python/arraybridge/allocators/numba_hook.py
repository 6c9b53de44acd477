# SPDX-License-Identifier: Apache-2.0
"""Numba's external memory management: a memory manager for all of its contexts, which asks the pools that are open."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from arraybridge.adapters import ensure_module
from arraybridge.allocators.pool import Pool
from arraybridge.errors import InvalidRequest, OutOfMemory

_OUT_OF_MEMORY: Final = 2  # CUDA's error


class NumbaHook(contextlib.ExitStack):
    """While it is entered, Numba allocates in the pool, if the pool's GPU is the current one.

    Args:
        everywhere: in all threads; otherwise in the thread that entered it.

    Raises:
        InvalidRequest: Numba has a context of the GPU already, with another memory manager, which it keeps.
    """

    def __init__(self, pool: Pool, min_bytes: int, everywhere: bool) -> None:
        super().__init__()
        self._pool, self._min_bytes, self._everywhere = pool, min_bytes, everywhere
        self._thread = 0

    def __enter__(self) -> NumbaHook:
        super().__enter__()
        manager = _manager()
        cuda = ensure_module("numba.cuda")
        cuda.set_memory_manager(manager)
        context = cuda.gpus[self._pool.ordinal].get_primary_context()
        if not isinstance(context.memory_manager, manager):
            raise InvalidRequest(
                'Numba chooses its memory manager when it first uses a GPU, and has used this one: enter born("numba") before '
                "that, or call numba.cuda.close() where no array of Numba lives any more"
            )
        self._thread = threading.get_ident()
        manager.hooks.append(self)
        self.callback(manager.hooks.remove, self)
        return self

    def takes(self, ordinal: int, nbytes: int) -> bool:
        """True if an allocation of the calling thread is for this pool."""
        here = self._everywhere or threading.get_ident() == self._thread
        return here and nbytes >= self._min_bytes and ordinal == self._pool.ordinal

    def allocate(self, nbytes: int) -> tuple[int, Callable[[], None]] | None:
        """An address and what frees it; None: the framework's own memory serves.

        Raises:
            OutOfMemory: the broker has none.
        """
        address = self._pool.allocate(nbytes)  # Numba does not say for which stream
        return (address, functools.partial(self._pool.free, address)) if address else None


@functools.cache
def _manager() -> Any:
    cuda, driver = ensure_module("numba.cuda"), ensure_module("numba.cuda.cudadrv.driver")

    class BornMemoryManager(driver.NumbaCUDAMemoryManager):  # type: ignore[name-defined,misc]
        """Numba's own manager, and broker memory while a block of born() is open."""

        hooks: Final[list[NumbaHook]] = []  # the inner ones last

        def memalloc(self, size: int) -> Any:
            ordinal = self.context.device.id
            for hook in reversed(self.hooks):
                if not hook.takes(ordinal, size):
                    continue
                try:
                    born = hook.allocate(size)
                except OutOfMemory as refusal:
                    raise driver.CudaAPIError(_OUT_OF_MEMORY, f"no memory for an array in the broker: {refusal}") from refusal
                if born is not None:
                    address, free = born
                    return cuda.MemoryPointer(weakref.proxy(self.context), ctypes.c_void_p(address), size, finalizer=free)
            return super().memalloc(size)

    return BornMemoryManager
