# SPDX-License-Identifier: Apache-2.0
"""cuda.core's memory resource: that of the GPU's Device in the thread that enters the block."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from arraybridge.adapters import ensure_module
from arraybridge.allocators.pool import Pool
from arraybridge.errors import OutOfMemory


class CudaCoreHook(contextlib.ExitStack):
    """While it is entered, `Device.allocate` of cuda.core allocates in the pool, in this thread."""

    def __init__(self, pool: Pool, min_bytes: int) -> None:
        super().__init__()
        self._pool, self._min_bytes = pool, min_bytes

    def __enter__(self) -> CudaCoreHook:
        super().__enter__()
        device = ensure_module("cuda.core").Device(self._pool.ordinal)
        device.set_current()
        before = device.memory_resource
        device.memory_resource = _resource()(self._pool, self._min_bytes, before)
        self.callback(setattr, device, "memory_resource", before)
        return self


@functools.cache
def _resource() -> Any:
    core = ensure_module("cuda.core")

    class BornMemoryResource(core.MemoryResource):  # type: ignore[name-defined,misc]
        """Buffers in broker memory. Each is a block of its own: `put(buffer)` copies nothing."""

        def __init__(self, pool: Pool, min_bytes: int, other: Any) -> None:
            self._pool, self._min_bytes, self._other = pool, min_bytes, other

        def allocate(self, size: int, *, stream: Any) -> Any:
            if size >= self._min_bytes:
                try:
                    address = self._pool.allocate(size)
                except OutOfMemory as refusal:
                    raise _error()(f"CUDA_ERROR_OUT_OF_MEMORY: no memory for a buffer in the broker: {refusal}") from refusal
                if address:
                    return core.Buffer.from_handle(address, size, mr=self, stream=stream)
            return self._other.allocate(size, stream=stream)

        def deallocate(self, ptr: Any, size: int, *, stream: Any) -> None:
            self._pool.free(int(ptr))

        @property
        def is_device_accessible(self) -> bool:
            return True

        @property
        def is_host_accessible(self) -> bool:
            return False

        @property
        def device_id(self) -> int:
            return self._pool.ordinal

    return BornMemoryResource


def _error() -> type[Exception]:
    """The class of cuda.core's errors of the driver, which has no public name."""
    found: type[Exception] = ensure_module("cuda.core._utils.cuda_utils").CUDAError
    return found
