# SPDX-License-Identifier: Apache-2.0
"""Cleanup of the caches of frameworks, and retries of functions that ran out of memory.

This module imports no framework: a framework that is not imported caches nothing. Live arrays are never touched.

    >>> arraybridge.cleanup_all_gpu_frameworks()
    >>> arraybridge.cleanup_torch_gpu(0)    # of GPU 0; also cleanup_cupy_gpu, cleanup_jax_gpu, cleanup_tensorflow_gpu,
    >>> arraybridge.MEMORY_TYPE_CLEANUP_REGISTRY["torch"]()    # cleanup_pyclesperanto_gpu, cleanup_numpy_gpu
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

from arraybridge import adapters, autograph
from arraybridge.detect import MemoryType
from arraybridge.errors import OutOfMemory

__all__ = [
    "MEMORY_TYPE_CLEANUP_REGISTRY",
    "cleanup_all_gpu_frameworks",
    "cleanup_cupy_gpu",
    "cleanup_jax_gpu",
    "cleanup_numpy_gpu",
    "cleanup_pyclesperanto_gpu",
    "cleanup_tensorflow_gpu",
    "cleanup_torch_gpu",
    "clear_cache",
    "execute_with_oom_recovery",
    "is_oom_error",
]
_T = TypeVar("_T")
_CAUSES_MAX: Final = 16


def clear_cache(memory_type: str, device_id: int | None = None) -> None:
    """Frees memory that this framework caches and no array uses: on GPU `device_id`, or on all.

    torch: its cached blocks; CuPy: both of its pools; JAX, TensorFlow, pyclesperanto: only what garbage collection
    frees, because their allocators have no such function; NumPy: nothing. Does nothing for a framework or GPU that does
    not exist here. Restores the current device.

    Raises:
        InvalidMemoryType: there is no such memory type.

    Example:
        >>> arraybridge.clear_cache("torch", device_id=0)
    """
    adapter = adapters.of_memory_type(memory_type)
    if memory_type == MemoryType.NUMPY or memory_type not in sys.modules:
        return
    gc.collect()
    adapter.clean(device_id)


def _cleanup(memory_type: MemoryType) -> Callable[..., None]:
    def cleanup(device_id: int | None = None) -> None:
        clear_cache(memory_type, device_id)

    cleanup.__name__ = cleanup.__qualname__ = f"cleanup_{memory_type}_gpu"
    cleanup.__doc__ = f"Frees the memory that {memory_type.value} caches: `clear_cache({memory_type.value!r}, device_id)`."
    return cleanup


MEMORY_TYPE_CLEANUP_REGISTRY: Final = {each.value: _cleanup(each) for each in MemoryType}
cleanup_numpy_gpu = MEMORY_TYPE_CLEANUP_REGISTRY["numpy"]
cleanup_cupy_gpu = MEMORY_TYPE_CLEANUP_REGISTRY["cupy"]
cleanup_torch_gpu = MEMORY_TYPE_CLEANUP_REGISTRY["torch"]
cleanup_tensorflow_gpu = MEMORY_TYPE_CLEANUP_REGISTRY["tensorflow"]
cleanup_jax_gpu = MEMORY_TYPE_CLEANUP_REGISTRY["jax"]
cleanup_pyclesperanto_gpu = MEMORY_TYPE_CLEANUP_REGISTRY["pyclesperanto"]


def cleanup_all_gpu_frameworks(device_id: int | None = None) -> None:
    """clear_cache for all six frameworks."""
    for cleanup in MEMORY_TYPE_CLEANUP_REGISTRY.values():
        cleanup(device_id)


def is_oom_error(error: BaseException, memory_type: str) -> bool:
    """True if `error`, or an exception in its chain, reports lack of memory: as an error of this framework, as
    MemoryError, or as our OutOfMemory. Other failures of a GPU do not.

    Raises:
        InvalidMemoryType: there is no such memory type.

    Example:
        >>> arraybridge.is_oom_error(MemoryError(), "torch"), arraybridge.is_oom_error(ValueError(), "torch")
        (True, False)
    """
    adapter = adapters.of_memory_type(memory_type)
    imported = memory_type in sys.modules
    return any(isinstance(each, (MemoryError, OutOfMemory)) or (imported and adapter.out_of_memory(each)) for each in _with_causes(error))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    # A chain of exceptions can be cyclic.
    each: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if each is None:
            return
        yield each
        each = each.__cause__


def execute_with_oom_recovery(func: Callable[[], _T], memory_type: str, max_retries: int = 2) -> _T:
    """Calls func(); if it runs out of memory, calls clear_cache and func() again, at most `max_retries` times.

    Raises:
        Exceptions of func: any other error after one run; out of memory as the first run raised it.

    Example:
        >>> arraybridge.execute_with_oom_recovery(lambda: np.ones(3).sum().item(), "numpy")
        3.0
    """
    tries = _Tries(memory_type, max_retries)
    while tries.another():
        with tries:
            return func()
    raise tries.failure


async def await_with_oom_recovery(func: Callable[[], Awaitable[_T]], memory_type: str, max_retries: int = 2) -> _T:
    """execute_with_oom_recovery for a function whose result is awaited."""
    tries = _Tries(memory_type, max_retries)
    while tries.another():
        with tries:
            return await func()
    raise tries.failure


class _Tries:
    """Runs of one function, each in a `with` block, which catches errors that report lack of memory."""

    def __init__(self, memory_type: str, max_retries: int) -> None:
        self._memory_type = memory_type
        self._left = max(0, max_retries) + 1
        self._first: BaseException | None = None

    @property
    def failure(self) -> BaseException:
        """The exception of the first run. REQUIRES: all runs have failed."""
        assert self._first is not None
        return self._first

    def another(self) -> bool:
        """True if there is another run; clears the caches before it if the previous one has failed."""
        if self._left and self._first is not None:
            clear_cache(self._memory_type)
        self._left -= 1
        return self._left >= 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or not is_oom_error(error, self._memory_type):
            return False
        self._first = self._first or error
        # The frames of the run reference its arrays.
        for each in _with_causes(error):
            traceback.clear_frames(each.__traceback__)
        return True


autograph.mark_module(__name__)
