# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory pools: one whose segments are blocks of a broker.

PyTorch carves tensors out of segments, keeps the segments of tensors that are gone, and tells nothing of it. So a tensor that
is published in place is kept until its share has ended (`Memory`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Protocol

from arraybridge import _core
from arraybridge.adapters import ensure_module


class Blocks(Protocol):
    """The segments of one thread, in the extension."""

    def enter(self, core: _core.Core) -> None:
        """From now on PyTorch's pools take them from this connection's broker."""

    def leave(self) -> None:
        """Ends it."""

    def counts(self) -> tuple[int, int, int, int, str]:
        """Segments, bytes, both of those that were refused, and the latest refusal."""


class Memory(Protocol):
    """The extension's side of PyTorch's segments. Its length: the tensors that are kept for readers."""

    @property
    def functions(self) -> tuple[int, int]:
        """The addresses of two functions, as torch.cuda.memory.CUDAPluggableAllocator has them."""

    def __len__(self) -> int: ...
    def sweep(self) -> None:
        """Lets tensors go whose shares have ended."""

    def blocks(self) -> Blocks: ...


class TorchPool:
    """A memory pool of one GPU, for any number of blocks of code, one after the other or in several threads."""

    def __init__(self) -> None:
        torch: Any = ensure_module("torch")
        self.memory: Memory = _core.torch_memory()
        # CUDAPluggableAllocator does so with the names of two functions in a library.
        self._functions = torch._C._cuda_customAllocator(*self.memory.functions)
        self._pool = torch.cuda.MemPool(self._functions)
        self._use = torch.cuda.use_mem_pool
        self._inside = threading.local()

    @contextlib.contextmanager
    def used(self, ordinal: int) -> Iterator[None]:
        """The tensors of this thread are made in the pool. These blocks nest, which those of PyTorch do not."""
        if getattr(self._inside, "yes", False):
            yield
            return
        self._inside.yes = True
        try:
            with self._use(self._pool, ordinal):
                yield
        finally:
            self._inside.yes = False


class TorchHook(contextlib.ExitStack):
    """While it is entered, PyTorch makes the GPU's tensors in the pool, in this thread.

    Args:
        core: a connection, whose broker has the memory.
    """

    def __init__(self, pool: TorchPool, core: _core.Core, ordinal: int) -> None:
        super().__init__()
        self._pool, self._ordinal = pool, ordinal
        self._core: _core.Core | None = core
        self._blocks = pool.memory.blocks()

    def __enter__(self) -> TorchHook:
        super().__enter__()
        self._pool.memory.sweep()
        core, self._core = self._core, None  # a closed connection ends
        assert core is not None, "it is entered once"
        self._blocks.enter(core)
        self.callback(self._blocks.leave)
        self.enter_context(self._pool.used(self._ordinal))
        return self

    def counts(self) -> tuple[int, int, dict[str, tuple[int, int]], str]:
        """As `Pool.counts`, of segments."""
        blocks, taken, refused, refused_bytes, refusal = self._blocks.counts()
        return blocks, taken, {"refused": (refused, refused_bytes)} if refused else {}, refusal
