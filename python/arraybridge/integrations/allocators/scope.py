# SPDX-License-Identifier: Apache-2.0
"""Allocators are those of frameworks on one GPU that take memory of a broker while a block of `Broker.born` is open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from arraybridge import _core, autograph
from arraybridge.errors import InvalidRequest
from arraybridge.integrations.allocators.cuda_core_hook import CudaCoreHook
from arraybridge.integrations.allocators.cupy_hook import CupyHook
from arraybridge.integrations.allocators.numba_hook import NumbaHook
from arraybridge.integrations.allocators.pool import Pool
from arraybridge.integrations.allocators.torch_hook import TorchHook, TorchPool

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


class Allocators:
    """A `Scope` of `Born`, for allocators on a GPU.

    Args:
        torch_pool: makes or finds the memory pool of PyTorch, if it is asked for.
    """

    def __init__(
        self, ask: Callable[[Callable[[_core.Core], Any]], Any], core: _core.Core, wish: Wish, torch_pool: Callable[[], TorchPool]
    ) -> None:
        self._wish = wish
        self._open = contextlib.ExitStack()
        self._pool = Pool(ask, wish.ordinal, wish.keep_bytes)
        self._torch = TorchHook(torch_pool(), core, wish.ordinal) if "torch" in wish.frameworks else None

    def enter(self) -> None:
        """Exchanges the allocators."""
        pool, wish = self._pool, self._wish
        with contextlib.ExitStack() as hooks:
            hooks.callback(pool.give_back)
            if "cupy" in wish.frameworks:
                hooks.enter_context(CupyHook(pool, wish.min_bytes, wish.everywhere))
            if "numba" in wish.frameworks:
                hooks.enter_context(NumbaHook(pool, wish.min_bytes, wish.everywhere))
            if "cuda.core" in wish.frameworks:
                hooks.enter_context(CudaCoreHook(pool, wish.min_bytes))
            if self._torch is not None:
                hooks.enter_context(self._torch)
            self._open = hooks.pop_all()

    def leave(self) -> None:
        """Restores them. Arrays that were born live on."""
        self._open.close()

    def counts(self) -> tuple[int, int, dict[str, tuple[int, int]], str]:
        """As `Scope.counts`."""
        found = [self._pool.counts(), *([] if self._torch is None else [self._torch.counts()])]
        return (
            sum(each[0] for each in found),
            sum(each[1] for each in found),
            _added([each[2] for each in found]),
            "; ".join(each[3] for each in found if each[3]),
        )


def _added(all_missed: Sequence[dict[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    total: dict[str, tuple[int, int]] = {}
    for missed in all_missed:
        for reason, (arrays, size) in missed.items():
            before = total.get(reason, (0, 0))
            total[reason] = before[0] + arrays, before[1] + size
    return total


autograph.mark_module(__name__)
