# SPDX-License-Identifier: Apache-2.0
"""The part of a node broker that serves other nodes, without Ray: who may read from whom, and what is left of readers that die."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import numpy as np
import pytest

from arraybridge.broker import replica
from arraybridge.broker.share import record_of
from arraybridge.errors import ShareNotFound
from arraybridge.integrations import ray_source
from arraybridge.integrations.ray_source import Source, key_of


@pytest.fixture
def here(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The node's broker: the session's daemon, and a namespace of the test's own."""
    monkeypatch.setenv("ARRAYBRIDGE_ADDRESS", address)
    namespace = f"source{os.getpid()}"
    yield namespace
    replica.broker_of(namespace).close()


def shared(namespace: str):
    share = replica.broker_of(namespace).put(np.ones(100))
    return share, record_of(share)


def test_readers_are_spread(here: str) -> None:
    async def run() -> None:
        source = Source("s")
        share, record = shared(here)
        assert [await source.offer(record, f"r{number}", f"n{number}") for number in (1, 2)] == ["s", "s"]
        third = asyncio.ensure_future(source.offer(record, "r3", "n3"))
        await asyncio.sleep(0.1)
        assert not third.done()
        source.moved(key_of(record), "n1", True, "")
        assert await third == "n1"  # it has sent least
        assert await source.offer(record, "r4", "n4") == "n1" and await source.offer(record, "r5", "n5") == "s"
        source.moved(key_of(record), "n3", False, "n1")  # n1 turned out to have none
        assert source.counts == {"readers": 5, "copies": 1}
        share.withdraw()
        assert await source.ended("r1") == [key_of(record)] and source.counts["copies"] == 0

    asyncio.run(run())


def test_a_reader_that_died_frees_its_place(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_source, "POLL_S", 0.05)
    monkeypatch.setattr(ray_source, "FORGOTTEN_S", 0.2)

    async def run() -> None:
        source = Source("s")
        share, record = shared(here)
        for number in (1, 2):
            assert await source.offer(record, f"r{number}", f"n{number}") == "s"
        # They never call again; nor does anything end.
        assert await asyncio.wait_for(source.offer(record, "r3", "n3"), 20) == "s"
        assert await source.ended("r1") is None
        # A new life of a node broker takes the place of the old one.
        for life in range(5):
            assert await asyncio.wait_for(source.offer(record, f"life{life}", "n9"), 20) == "s"
        share.withdraw()

    asyncio.run(run())


def test_a_share_that_ends_while_readers_wait(here: str) -> None:
    async def run() -> None:
        source = Source("s")
        share, record = shared(here)
        for number in (1, 2):
            await source.offer(record, f"r{number}", f"n{number}")
        third = asyncio.ensure_future(source.offer(record, "r3", "n3"))
        await asyncio.sleep(0.05)
        share.withdraw()
        with pytest.raises(ShareNotFound):
            await asyncio.wait_for(third, 20)
        with pytest.raises(ShareNotFound):
            await source.offer(record, "r4", "n4")
        assert source.counts["copies"] == 0
        with pytest.raises(ShareNotFound, match="earlier run of that broker"):
            await source.offer(record._replace(broker_id=b"another run"), "r4", "n4")

    asyncio.run(run())


def test_a_watch_that_is_lost_makes_all_begin_anew(here: str) -> None:
    async def run() -> None:
        source = Source("s")
        share, record = shared(here)
        assert await source.offer(record, "r1", "n1") == "s"
        waiting = asyncio.ensure_future(source.ended("r1"))
        await asyncio.sleep(0.05)
        source.watches[here].cancel()
        assert await asyncio.wait_for(waiting, 20) is None and source.counts == {"readers": 0, "copies": 0}
        assert await source.offer(record, "r1", "n1") == "s"
        share.withdraw()
        assert await asyncio.wait_for(source.ended("r1"), 20) == [key_of(record)]

    asyncio.run(run())
