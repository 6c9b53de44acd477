# SPDX-License-Identifier: Apache-2.0
"""An Allocator is that of a framework on one GPU, which takes memory of a broker while a block of `Broker.born` is open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from arraybridge import _core, autograph
from arraybridge.allocators.cuda_core_hook import CudaCoreHook
from arraybridge.allocators.cupy_hook import CupyHook
from arraybridge.allocators.numba_hook import NumbaHook
from arraybridge.allocators.pool import Pool
from arraybridge.allocators.torch_hook import TorchHook, TorchPool
from arraybridge.errors import InvalidRequest

FRAMEWORKS: Final = ("cupy", "numba", "torch", "cuda.core")
# Their GPU memory comes from an allocator inside of them, for which they take no other.
NO_HOOK: Final = ("jax", "tensorflow")
_OF_ONE_THREAD: Final = ("torch", "cuda.core")


class Wish(NamedTuple):
    """The arguments of `born` on a GPU.

    Attributes:
        ordinal: of the GPU in this process.
        min_bytes: smaller arrays are the framework's own; not of PyTorch, whose pool has all tensors of the block.
        keep_bytes: of freed memory that is kept for the next array.
    """

    frameworks: tuple[str, ...]
    ordinal: int
    min_bytes: int
    everywhere: bool
    keep_bytes: int

    def check(self) -> None:
        """Raises:
        InvalidRequest: a framework that has no arrays on GPUs, or whose allocator is of one thread.
        """
        others = sorted(set(self.frameworks) - {*FRAMEWORKS, *NO_HOOK})
        if others or not self.frameworks:
            known = ", ".join(f'"{each}"' for each in FRAMEWORKS)
            raise InvalidRequest(f"born takes {known} on a GPU, not {', '.join(map(repr, others)) or 'nothing'}: name one of them")
        of_one_thread = [each for each in _OF_ONE_THREAD if each in self.frameworks]
        if self.everywhere and of_one_thread:
            raise InvalidRequest(
                f"everywhere=True is not possible for {' and '.join(of_one_thread)}, where an allocator belongs to one thread: "
                "enter a block of born() in each thread"
            )


class Allocator:
    """A `Scope` of `Born`, for the allocator of one framework on a GPU.

    Args:
        torch_pool: makes or finds the memory pool of PyTorch, if it is asked for.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[Callable[[_core.Core], Any]], Any],
        core: _core.Core,
        wish: Wish,
        torch_pool: Callable[[], TorchPool],
    ) -> None:
        self._pool = Pool(ask, wish.ordinal, wish.keep_bytes)
        self._counted: Pool | TorchHook = self._pool
        if name == "cupy":
            self._hook: contextlib.ExitStack = CupyHook(self._pool, wish.min_bytes, wish.everywhere)
        elif name == "numba":
            self._hook = NumbaHook(self._pool, wish.min_bytes, wish.everywhere)
        elif name == "cuda.core":
            self._hook = CudaCoreHook(self._pool, wish.min_bytes)
        else:
            self._hook = self._counted = TorchHook(torch_pool(), core, wish.ordinal)

    def enter(self) -> None:
        """Exchanges the allocator."""
        with contextlib.ExitStack() as entered:
            entered.callback(self._pool.give_back)
            entered.enter_context(self._hook)
            self._open = entered.pop_all()

    def leave(self) -> None:
        """Restores it. Arrays that were born live on."""
        self._open.close()

    def counts(self) -> tuple[int, int, dict[str, tuple[int, int]], str]:
        """As `Scope.counts`."""
        return self._counted.counts()


autograph.mark_module(__name__)
