# SPDX-License-Identifier: Apache-2.0
"""The pool of the allocators on a GPU, with blocks that this test makes: what it keeps, for whom, and what it gives back.
tests/simulated_cuda/frameworks has real blocks and packages.
"""

import gc
import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest

from arraybridge.allocators.pool import Order, Pool
from arraybridge.errors import BrokerUnavailable, InvalidRequest, OutOfMemory

SIZE = 1 << 20
STREAM, OTHER = Order(7, None), Order(8, None)


class Blocks:
    """A broker's memory of one GPU."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room
        self.alive: set[int] = set()
        self.shared: set[int] = set()  # addresses of blocks that were published
        self.asked = 0
        self.error: Exception | None = None
        self._next = itertools.count(1 << 30, 1 << 24)

    def ask(self, call: Callable[[Any], Any]) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        if (len(self.alive) + 1) * SIZE > self.room:
            raise OutOfMemory("namespace 'default': no room", 8)
        return Block(self, next(self._next))


class Block:
    nbytes = SIZE

    def __init__(self, blocks: Blocks, address: int) -> None:
        self.address, self._blocks = address, blocks
        blocks.alive.add(address)

    @property
    def unshared(self) -> bool:
        return self.address not in self._blocks.shared

    def __del__(self) -> None:
        self._blocks.alive.discard(self.address)


@pytest.fixture
def blocks() -> Blocks:
    return Blocks()


@pytest.fixture
def pool(blocks: Blocks) -> Pool:
    return Pool(blocks.ask, 0, 4 * SIZE)


def test_a_freed_block_is_for_its_stream(pool: Pool, blocks: Blocks) -> None:
    address = pool.allocate(SIZE, STREAM)
    pool.free(address, STREAM)
    assert blocks.alive == {address}
    assert pool.allocate(SIZE, OTHER) != address
    assert pool.allocate(SIZE) != address
    assert pool.allocate(SIZE, STREAM) == address
    assert pool.allocate(SIZE, STREAM) != address


def test_a_stream_lives_as_long_as_its_blocks_are_kept(pool: Pool) -> None:
    class Stream:
        gone = False

        def __del__(self) -> None:
            Stream.gone = True

    stream = Order(9, Stream())
    pool.free(pool.allocate(SIZE, stream), stream)
    del stream
    gc.collect()
    assert not Stream.gone
    pool.give_back()
    gc.collect()
    assert Stream.gone


def test_a_block_without_a_stream_is_given_back_at_once(pool: Pool, blocks: Blocks) -> None:
    pool.free(pool.allocate(SIZE))
    assert blocks.alive == set()


def test_a_block_that_another_stream_used_last_is_given_back(pool: Pool, blocks: Blocks) -> None:
    pool.free(pool.allocate(SIZE, STREAM), OTHER)
    pool.free(pool.allocate(SIZE, STREAM))
    assert blocks.alive == set()


def test_a_block_of_a_share_is_given_back(pool: Pool, blocks: Blocks) -> None:
    address = pool.allocate(SIZE, STREAM)
    blocks.shared.add(address)
    pool.free(address, STREAM)
    assert blocks.alive == set()


def test_no_more_than_the_limit_is_kept(pool: Pool, blocks: Blocks) -> None:
    addresses = [pool.allocate(SIZE, STREAM) for _ in range(6)]
    assert pool.taken_bytes == 6 * SIZE
    for address in addresses:
        pool.free(address, STREAM)
    assert len(blocks.alive) == 4
    assert pool.taken_bytes == 0
    pool.give_back()
    assert blocks.alive == set()
    late = pool.allocate(SIZE, STREAM)
    pool.free(late, STREAM)
    assert blocks.alive == set(), "after the end of the block nothing is kept"


def test_what_is_kept_is_given_back_before_memory_is_waited_for(pool: Pool, blocks: Blocks) -> None:
    blocks.room = 2 * SIZE
    kept = [pool.allocate(SIZE, STREAM) for _ in range(2)]
    for address in kept:
        pool.free(address, STREAM)
    assert pool.allocate(SIZE, OTHER) not in (0, *kept)
    assert pool.counts()[:3] == (3, 3 * SIZE, {})


def test_the_broker_is_asked_for_room_twice_and_then_no_more(pool: Pool, blocks: Blocks) -> None:
    """Once for what is there, once in the waiting line."""
    blocks.room = 0
    with pytest.raises(OutOfMemory):
        pool.allocate(SIZE, STREAM)
    assert blocks.asked == 2
    assert pool.counts() == (0, 0, {"refused": (1, SIZE)}, "namespace 'default': no room")


def test_without_a_broker_the_frameworks_own_memory_serves(pool: Pool, blocks: Blocks) -> None:
    blocks.error = BrokerUnavailable("no broker answers")
    assert pool.allocate(SIZE) == 0
    assert pool.counts() == (0, 0, {"refused": (1, SIZE)}, "no broker answers")


def test_a_free_inside_of_an_allocation_does_not_wait(pool: Pool, blocks: Blocks) -> None:
    """A collection of garbage frees at any point, also while this thread has the pool's lock."""
    address = pool.allocate(SIZE, STREAM)
    with pool._lock:
        pool.free(address, STREAM)
        assert address in blocks.alive
    assert pool.allocate(SIZE, STREAM) == address


def test_a_forked_child_neither_allocates_nor_frees(pool: Pool, blocks: Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    address = pool.allocate(SIZE)
    monkeypatch.setattr(pool, "_getpid", lambda: os.getpid() + 1)
    with pytest.raises(InvalidRequest, match="forked inside of a block of born"):
        pool.allocate(SIZE)
    pool.free(address)
    assert blocks.alive == {address}
    assert pool.counts()[2] == {"child": (1, SIZE)}


def test_a_pool_lives_as_long_as_its_blocks(blocks: Blocks) -> None:
    """An array in a cycle of garbage frees its block by a pool that nothing else refers to."""

    class Array:
        def __init__(self, pool: Pool) -> None:
            self.address, self.free, self.itself = pool.allocate(SIZE), pool.free, self

        def __del__(self) -> None:
            self.free(self.address)

    Array(Pool(blocks.ask, 0, SIZE))
    assert len(blocks.alive) == 1
    gc.collect()
    assert blocks.alive == set()
