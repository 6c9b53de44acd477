# SPDX-License-Identifier: Apache-2.0
"""Clients that hold shares without calls die, write garbage and never release: only they are affected, and no byte is leaked."""

from __future__ import annotations

import mmap
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import BROWSE, MAPPED, Daemon, Ledger, RawLifeline, Refused, daemon_in, eventually

PAGE, HEADER_BYTES, RECORD_BYTES, SLOTS = 4096, 4096, 128, 504
GENERATION_BITS, LIVE, DEAD = 38, 2, 3
KIB = 1 << 10
ALL_ONES = 2**64 - 1


class HandMade:
    """A session that maps the pages by hand and writes anything into its own page."""

    def __init__(self, daemon: Daemon, messages: Any, namespace: str = "default"):
        self.line = RawLifeline(daemon.directory, messages)
        self.line.hello()
        self.messages = messages
        table, page = (self.browse(namespace, part) for part in (0, 1))
        self.table = mmap.mmap(table, 0, mmap.MAP_SHARED, mmap.PROT_READ)
        self.page = mmap.mmap(page, PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(table)
        self.page_file = page
        self.capacity = struct.unpack_from("<Q", self.table, 32)[0]

    def browse(self, namespace: str, part: int) -> int:
        request = self.messages.BrowseRequest(namespace=namespace, part=part)
        _, descriptors = self.line.call(BROWSE, request, self.messages.BrowseResponse)
        assert len(descriptors) == 1
        return descriptors[0]

    def seal(self, namespace: str = "default") -> None:
        self.line.call(MAPPED, self.messages.MappedRequest(hazard_page_of=namespace), self.messages.MappedResponse)

    def words(self) -> Iterator[int]:
        """Writes a hold for every record that is live now."""
        for slot in range(min(self.capacity, 1000)):
            state = struct.unpack_from("<Q", self.table, HEADER_BYTES + slot * RECORD_BYTES)[0]
            if state & 3 == LIVE:
                yield (slot + 1) << GENERATION_BITS | state >> 2

    def write(self, words: list[int], high: int = SLOTS) -> None:
        struct.pack_into("<I", self.page, 0, high)
        for index, word in enumerate(words[:SLOTS]):
            struct.pack_into("<Q", self.page, 64 + 8 * index, word)

    def close(self) -> None:
        self.line.close()
        self.table.close()
        self.page.close()
        os.close(self.page_file)


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[Daemon]:
    """One session may pin 900 KiB of withdrawn bytes."""
    with daemon_in(tmp_path / "tight", "--limit", "pinned_bytes_per_session=900KiB") as running:
        yield running


def test_many_kills_leak_no_byte(daemon: Daemon, ledger: Ledger) -> None:
    """SIGKILL at a random moment of holding, while the names are continuously replaced."""
    chance = random.Random(11)
    writer = daemon.client()
    for name in range(8):
        writer.ask(f"put churn/{name} 65536 1")
    readers = [daemon.client() for _ in range(4)]
    for reader in readers:
        reader.tell(f"churn {chance.randrange(1000)} 8 100000000")
    met = 0
    for _ in range(60):
        for _ in range(chance.randrange(1, 12)):
            writer.ask(f"put churn/{chance.randrange(8)} 65536 1 replace")
        seen = daemon.stats()
        met += seen["pinned_bytes"] > 0
        victim = readers.pop(chance.randrange(len(readers)))
        victim.kill()
        daemon.clients.remove(victim)
        readers.append(daemon.client())
        readers[-1].tell(f"churn {chance.randrange(1000)} 8 100000000")
    for reader in readers:
        reader.kill()
    assert met > 0 or not daemon.stats()["hazard_slots"], "no withdrawn share was ever held"
    ledger.settle(sessions=1, shares=8)
    for name in range(8):
        writer.ask(f"withdraw churn/{name}")
    writer.leave()
    ledger.settle()


def test_garbage_in_a_page_affects_no_other_session(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Continuously changing garbage with indexes beyond every table: the broker only compares it."""
    chance = random.Random(5)
    writer, reader = daemon.client(), daemon.client()
    writer.ask("put a 65536 1")
    reader.ask("get a 1")
    liars = [HandMade(daemon, messages) for _ in range(3)]
    for round_ in range(200):
        for liar in liars:
            liar.write([chance.choice([ALL_ONES, chance.getrandbits(64), 1, 0]) for _ in range(SLOTS)], chance.getrandbits(32))
        writer.ask(f"put a 65536 {round_} replace")
        reader.ask("drop")
        reader.ask(f"get a {round_}")
    reader.ask("drop")
    reader.ask("flush")
    eventually("nothing is pinned", lambda: daemon.stats()["pinned_bytes"] == 0)
    assert writer.numbers("mine")["arena_bytes"] <= 8 << 20, "released memory is reused"
    for liar in liars:
        liar.close()
    reader.leave()
    writer.ask("withdraw a")
    writer.leave()
    ledger.settle()


def test_a_session_that_claims_everything_is_disconnected(tight: Daemon, messages: Any) -> None:
    """It never clears a hold: only bytes that it claims wait for it, and above its limit it is disconnected."""
    ledger = Ledger(tight)
    writer, reader = tight.client(), tight.client()
    for name in range(4):
        writer.ask(f"put share/{name} {256 * KIB} {name}")
        reader.ask(f"get share/{name} {name}")
    greedy = HandMade(tight, messages)
    greedy.seal()
    for name in range(4):  # by a call, which enters shares that are older than the catalogue
        reader.ask(f"get share/{name} {name}")
    claimed = list(greedy.words())
    assert len(claimed) == 4
    greedy.write(claimed)
    reader.ask("drop")
    reader.ask("flush")
    writer.ask("put share/0 262144 7 replace")
    assert tight.stats()["pinned_bytes"] == 256 * KIB, "it waits for the session that claims it"
    reader.ask("get share/0 7")
    reader.ask("check")
    for name in range(1, 4):
        writer.ask(f"withdraw share/{name}")
    greedy.write([*claimed, *greedy.words()])
    writer.ask("withdraw share/0")
    assert greedy.line.ended()
    eventually("its bytes are back", lambda: tight.stats()["pinned_bytes"] <= 256 * KIB)
    reader.ask("check")
    assert tight.stats()["sessions_cut_total"] == 1, "no other session"
    greedy.close()
    reader.leave()
    writer.leave()
    ledger.settle()


def test_only_its_session_can_map_a_page(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """After it is mapped it cannot be mapped writable again; a namespace that does not exist has no page."""
    writer = daemon.client()
    writer.ask("put a 4096 1")
    one = HandMade(daemon, messages)
    with pytest.raises(Refused, match="NAMESPACE_NOT_FOUND"):
        one.browse("elsewhere", 0)
    one.seal()
    with pytest.raises(PermissionError):
        mmap.mmap(one.page_file, PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        mmap.mmap(os.open(f"/proc/self/fd/{one.page_file}", os.O_RDWR), PAGE, mmap.MAP_SHARED, mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        os.ftruncate(one.page_file, 0)
    one.close()
    writer.ask("withdraw a")
    writer.leave()
    ledger.settle()
