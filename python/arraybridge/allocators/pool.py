# SPDX-License-Identifier: Apache-2.0
"""A Pool is memory of a broker on one GPU, in blocks that the allocators of frameworks take and free.

A block is used again for work that is ordered after its last use. A framework that states the stream of an allocation
gets freed blocks of that stream back at once. All others go back to the broker's arenas, which use them again when the
work has ended that this process had queued on the GPU.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from arraybridge import _core, autograph
from arraybridge.errors import BrokerError, BrokerTimeout, InvalidRequest, OutOfMemory

_GRANULE: Final = 256


class Block(Protocol):
    """A DeviceBlock of the extension: it is given back when it is dropped."""

    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def unshared(self) -> bool:
        """True if no process has the block that was published, and nothing in this process refers to it."""


class Order(NamedTuple):
    """The stream of an allocation. `owner` is the framework's object: no other stream gets its handle while it lives."""

    handle: int
    owner: object


class _Taken(NamedTuple):
    block: Block
    order: Order | None


class Pool:
    """Thread-safe. Frees may come at any point of a program, also while a collection of garbage interrupts this class, so
    a free takes no lock for which it would wait.

    Args:
        ask: calls its argument with the extension's connection, as `Connection.ask`.
        ordinal: of the GPU in this process.
        keep_bytes: how much freed memory is kept for the next allocation of its size and stream.
    """

    def __init__(self, ask: Callable[[Callable[[_core.Core], Block]], Block], ordinal: int, keep_bytes: int) -> None:
        self.ordinal: Final = ordinal
        self.users: list[object] = []  # of which the frameworks have functions; they live as long as a block does
        self.ended = False  # the interpreter ends, and with it every block
        self._ask, self._keep_bytes = ask, keep_bytes
        self._process = os.getpid()
        self._getpid = os.getpid  # as an attribute: at the interpreter's end a module may be empty
        self._lock = threading.Lock()
        self._taken: dict[int, _Taken] = {}  # by address
        self._freed: deque[tuple[int, int | None]] = deque()  # addresses of blocks in `_taken`, and their last streams
        self._kept: dict[tuple[int, int], list[_Taken]] = {}  # by size and stream
        self._kept_bytes = 0
        self._arrays = self._bytes = 0
        self._missed: dict[str, tuple[int, int]] = {}
        self._refusal = ""

    def allocate(self, nbytes: int, order: Order | None = None) -> int:
        """The address of a new block, 0 if the broker does not answer or may not be used: then the framework's own memory
        serves. Waits for memory once.

        Raises:
            OutOfMemory: the broker has none.
            InvalidRequest: this is a forked child of the process that made the pool.
        """
        if self._getpid() != self._process:
            self._miss("child", nbytes, "a forked child cannot use the GPU memory of its parent")
            raise InvalidRequest(
                "this process was forked inside of a block of born() that allocates on a GPU. CUDA does not work in a forked "
                'child of a process that has used it: start children by multiprocessing.get_context("spawn")'
            )
        self._settle()
        size = -(-nbytes // _GRANULE) * _GRANULE
        block = self._recent(size, order) or self._made(nbytes)
        if block is None:
            return 0
        with self._lock:
            self._taken[block.address] = _Taken(block, order)
            _alive.add(self)
            self._arrays += 1
            self._bytes += nbytes
        self._settle()
        return block.address

    def free(self, address: int, order: Order | None = None) -> None:
        """Takes a block back. Does nothing in a forked child, whose parent has it.

        Args:
            order: of the latest work with the block; it is kept for its stream if that is the stream of the allocation.
        """
        if not self.ended and self._getpid() == self._process:
            self._freed.append((address, None if order is None else order.handle))
            self._settle()

    def give_back(self, keep_bytes: int = 0) -> None:
        """Drops the blocks that are kept, and keeps no more than this from now on."""
        self._settle()
        with self._lock:
            self._keep_bytes = keep_bytes
        self._drop_kept()

    def counts(self) -> tuple[int, int, dict[str, tuple[int, int]], str]:
        """Allocations and bytes, both of those that were refused by the reason, and the latest refusal."""
        return self._arrays, self._bytes, dict(self._missed), self._refusal

    @property
    def taken_bytes(self) -> int:
        """The bytes of the blocks that the frameworks have."""
        with self._lock:
            return sum(each.block.nbytes for each in self._taken.values())

    def _recent(self, size: int, order: Order | None) -> Block | None:
        if order is None:
            return None
        with self._lock:
            found = self._kept.get((size, order.handle))
            if not found:
                return None
            block = found.pop().block
            if not found:
                del self._kept[size, order.handle]
            self._kept_bytes -= size
        return block

    def _made(self, nbytes: int) -> Block | None:
        try:
            try:
                return self._asked(nbytes, 0.0)
            except (OutOfMemory, BrokerTimeout):  # a busy broker does not answer at once
                self._drop_kept()
                return self._asked(nbytes, None)
        except OutOfMemory as refusal:
            self._miss("refused", nbytes, str(refusal))
            raise
        except BrokerError as refusal:
            self._miss("refused", nbytes, str(refusal))
            return None

    def _asked(self, nbytes: int, timeout_s: float | None) -> Block:
        return self._ask(lambda core: _core.device_block(core, nbytes, self.ordinal, timeout_s))

    def _miss(self, reason: str, nbytes: int, refusal: str) -> None:
        with self._lock:
            arrays, total = self._missed.get(reason, (0, 0))
            self._missed[reason] = arrays + 1, total + nbytes
            self._refusal = refusal

    def _drop_kept(self) -> None:
        with self._lock:
            dropped, self._kept, self._kept_bytes = self._kept, {}, 0
        dropped.clear()  # without the lock

    def _settle(self) -> None:
        """Keeps or drops what was freed. Returns at once if another call does so: that one takes all."""
        dropped: list[_Taken] = []
        while self._freed and self._lock.acquire(blocking=False):
            try:
                while self._freed:
                    address, stream = self._freed.popleft()
                    taken = self._taken.pop(address)
                    if not self._keep(taken, stream):
                        dropped.append(taken)
                if not self._taken:
                    _alive.discard(self)
            finally:
                self._lock.release()

    def _keep(self, taken: _Taken, stream: int | None) -> bool:
        block, order = taken
        if order is None or order.handle != stream or not block.unshared or self._kept_bytes + block.nbytes > self._keep_bytes:
            return False
        self._kept.setdefault((block.nbytes, order.handle), []).append(taken)
        self._kept_bytes += block.nbytes
        return True


# The pools with blocks in frameworks. An array that is garbage frees its block, which is not possible if the pool is garbage
# of the same collection.
_alive: Final[set[Pool]] = set()


@atexit.register
def _end() -> None:
    """From now on modules and objects are emptied in any order, and frameworks still free: nothing is done then."""
    for pool in _alive:
        pool.ended = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pool))


autograph.mark_module(__name__)
