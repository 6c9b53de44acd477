# SPDX-License-Identifier: Apache-2.0
"""A Source is the part of a node broker that serves other nodes: it names the node to read a share of its own from, and
tells the readers when shares have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from typing import Final

from arraybridge import autograph
from arraybridge.broker.replica import broker_of, contents_of, run_of
from arraybridge.broker.share import Record, Share
from arraybridge.broker.watch import Watch
from arraybridge.errors import BrokerError, ShareNotFound

Key = tuple[bytes, str, int]  # the run of a broker, a namespace, a share
POLL_S: Final = 10.0  # an `ended` call is answered within it
FORGOTTEN_S: Final = 2.5 * POLL_S  # a reader that has not called is gone
_SENDS_MAX: Final = 2  # of one share at a time, for each node that has it
_STUCK_S: Final = 60.0  # a reader waits while other readers get the share, and so long after the last of them


def key_of(record: Record) -> Key:
    return record.broker_id, record.namespace, record.id


class _Reader:
    """A node broker that reads shares of this node, and those that have ended since."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.shares: set[Key] = set()
        self.ended: list[Key] = []
        self.news = asyncio.Event()
        self.called = time.monotonic()

    def note(self, key: Key) -> None:
        if key in self.shares:
            self.shares.discard(key)
            self.ended.append(key)
            self.news.set()


class _Copies:
    """The nodes that have a share of this one, and to which nodes each is sending it."""

    def __init__(self, node: str) -> None:
        self.sends: dict[str, set[str]] = {node: set()}
        self.over = False  # the share has ended, or nothing is known of it any more
        self._changed = asyncio.Event()

    def free(self) -> str | None:
        """A node that may send it once more; of those that send least, the latest."""
        node = min(reversed(self.sends), key=lambda node: len(self.sends[node]))
        return node if len(self.sends[node]) < _SENDS_MAX else None

    def ends(self, node: str) -> None:
        """A node has the share, or has given up."""
        for readers in self.sends.values():
            readers.discard(node)
        self.wake()

    def wake(self) -> None:
        self._changed.set()
        self._changed.clear()

    async def change(self, seconds: float) -> bool:
        """Waits for a change. False: there was none."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Source:
    """All calls are made in the event loop of the node broker."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._readers: dict[str, _Reader] = {}  # by the life of their node brokers
        self._copies: dict[Key, _Copies] = {}
        self.watches: dict[str, asyncio.Task[None]] = {}  # by namespace
        self._watching = asyncio.Lock()

    @property
    def counts(self) -> dict[str, int]:
        return {"readers": len(self._readers), "copies": len(self._copies)}

    async def offer(self, record: Record, reader: str, reader_node: str) -> str:
        """The node from which a share of this one is to be read next. Waits while all that have it are sending."""
        key = key_of(record)
        await self.check_here(record)
        known = self._readers.setdefault(reader, _Reader(reader_node))
        known.called = time.monotonic()
        known.shares.add(key)
        copies = self._copies.setdefault(key, _Copies(self._node))
        try:
            await asyncio.to_thread(contents_of, Share(broker_of(record.namespace), record))
        except BrokerError:
            known.shares.discard(key)
            self._end(key)
            raise
        copies.ends(reader_node)  # what an earlier life of its node broker was reading
        deadline = time.monotonic() + _STUCK_S
        while not copies.over and (node := copies.free()) is None and time.monotonic() < deadline:
            if await copies.change(POLL_S):
                deadline = time.monotonic() + _STUCK_S
            known.called = time.monotonic()
            self._forget(time.monotonic() - FORGOTTEN_S)
        if copies.over:  # the share has ended, or the watch: begin anew, which tells
            return await self.offer(record, reader, reader_node)
        copies.sends[node or self._node].add(reader_node)
        return node or self._node

    def moved(self, key: Key, reader_node: str, has: bool, lacking: str) -> None:
        """A node has a share, or has not got it. lacking: a node that turned out to have none."""
        copies = self._copies.get(key)
        if copies is None:
            return
        if lacking != self._node:
            copies.sends.pop(lacking, None)
        if has:
            copies.sends.setdefault(reader_node, set())
        copies.ends(reader_node)

    async def ended(self, reader: str) -> list[Key] | None:
        """Which of the shares that a reader has read have ended; after POLL_S none. None: that is not known any more."""
        known = self._readers.get(reader)
        if known is None:
            return None
        known.called = time.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(known.news.wait(), POLL_S)
        if self._readers.get(reader) is not known:
            return None
        ended, known.ended = known.ended, []
        known.news.clear()
        return ended

    async def check_here(self, record: Record) -> None:
        """Checks that a share is, or was, of this node's broker, and watches for the ends of its namespace's shares."""
        broker = broker_of(record.namespace)
        if await asyncio.to_thread(run_of, broker) != record.broker_id:
            what = f"the node broker of node {self._node} is at {broker.latest_address}, which has no share {record.name!r}"
            raise ShareNotFound(f"{what}: it ended with an earlier run of that broker, or was put into another one", code=5)
        async with self._watching:
            if record.namespace not in self.watches:
                watch = await asyncio.to_thread(broker.watch, "withdraw")
                self.watches[record.namespace] = asyncio.ensure_future(self._tell(watch, record.namespace, record.broker_id))

    async def _tell(self, watch: Watch, namespace: str, run: bytes) -> None:
        """Notes for the readers which shares of a namespace end. If events are lost, the readers begin anew."""
        try:
            async with watch:
                async for event in watch:
                    self._end((run, namespace, event.share))
                    self._forget(time.monotonic() - FORGOTTEN_S)
        except BrokerError:
            pass
        finally:
            del self.watches[namespace]
            self._forget(math.inf)
            for key in list(self._copies):
                self._end(key)

    def _end(self, key: Key) -> None:
        for reader in self._readers.values():
            reader.note(key)
        copies = self._copies.pop(key, None)
        if copies is not None:
            copies.over = True
            copies.wake()

    def _forget(self, before: float) -> None:
        for me in [me for me, reader in self._readers.items() if reader.called < before]:
            reader = self._readers.pop(me)
            reader.news.set()
            for copies in self._copies.values():
                copies.ends(reader.node)


autograph.mark_module(__name__)
