"""Who publishes without calls dies, lies and is stopped: what it has published is whole, and no byte stays behind."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import signal
import struct
from pathlib import Path
from typing import Any

import pytest
from harness import BROWSE, GET_STATS, MAPPED, RING, Daemon, Ledger, RawLifeline, Refused, eventually

RING_PART, BELL_PART = 2, 3
ENTRIES, ENTRY_BYTES, HEADER_BYTES = 256, 128, 128
PAGE_BYTES = HEADER_BYTES + ENTRIES * ENTRY_BYTES
BELL_BYTES, OUTCOMES, OUTCOME_BYTES = 64 + 32 * ENTRIES, 64, 32
NO_REPLY = 1


class HandMade:
    """A session that maps its ring by hand and writes into it whatever it likes."""

    def __init__(self, daemon: Daemon, messages: Any, sealed: bool = True):
        self.line = RawLifeline(daemon.directory, messages)
        self.line.hello()
        self.messages = messages
        self.head = 0
        self.files = [self.browse(RING_PART), self.browse(BELL_PART)]
        self.ring = mmap.mmap(self.files[0], PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.bell = mmap.mmap(self.files[1], BELL_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
        if sealed:
            self.line.call(MAPPED, messages.MappedRequest(ring=True), messages.MappedResponse)

    def browse(self, part: int) -> int:
        request = self.messages.BrowseRequest(part=part)
        _, descriptors = self.line.call(BROWSE, request, self.messages.BrowseResponse)
        assert len(descriptors) == 1
        return descriptors[0]

    def enter(self, message: bytes, length: int | None = None) -> None:
        at = HEADER_BYTES + self.head % ENTRIES * ENTRY_BYTES
        said = len(message) if length is None else length
        self.ring[at : at + 2 + len(message)] = struct.pack("<H", said) + message
        self.head += 1
        self.set_head(self.head)

    def set_head(self, head: int) -> None:
        struct.pack_into("<Q", self.ring, 0, head % 2**64)

    def knock(self) -> None:
        self.line.send(RING, flags=NO_REPLY)

    def tail(self) -> int:
        return int(struct.unpack_from("<Q", self.bell, 0)[0])

    def outcome(self, entry: int) -> tuple[int, str]:
        code, reason = struct.unpack_from("<I28s", self.bell, OUTCOMES + entry % ENTRIES * OUTCOME_BYTES)
        return code, reason.rstrip(b"\0").decode()

    def close(self) -> None:
        self.line.close()
        self.ring.close()
        self.bell.close()
        for file in self.files:
            os.close(file)


def rings_mapped(daemon: Daemon) -> int:
    """Of how many rings and Bells the daemon has the memory."""
    return sum(("arraybridge-ring" in line) + ("arraybridge-bell" in line) for line in Path(f"/proc/{daemon.pid}/maps").open())


def test_a_storm_of_kills_leaves_whole_shares_and_no_byte(daemon: Daemon, ledger: Ledger) -> None:
    """SIGKILL at a random moment of publishing without calls: what is there is what its maker wrote, all of it."""
    chance = random.Random(7)
    reader = daemon.client()
    found = 0
    makers = []
    for number in range(30):
        maker = daemon.client()
        maker.tell(f"storm storm/{number} 4096 {number} 100000000")
        makers.append(maker)
        if len(makers) < 3:
            continue
        victim = makers.pop(chance.randrange(len(makers)))
        for _ in range(chance.randrange(1, 40)):
            reader.ask("stats")
        victim.kill()
        daemon.clients.remove(victim)
    for maker in makers:
        maker.kill()
    eventually("the killed have gone", lambda: daemon.stats()["sessions"] == 2)
    for number in range(30):
        for name in reader.ask(f"list storm/{number}/").split():
            reader.ask(f"get {name} {number}")
            reader.ask(f"withdraw {name}")
            found += 1
        reader.ask("drop")
    assert found > 100, "nobody had published anything"
    reader.leave()
    ledger.settle()
    assert rings_mapped(daemon) == 0


@pytest.mark.not_over(["cuda_vmm", "cuda_ipc"], "rings take what lies in host memory; the rest is published by calls")
def test_the_storms_go_through_rings(daemon: Daemon) -> None:
    maker = daemon.client()
    assert int(maker.ask("storm storm 4096 1 500")) > 490
    assert rings_mapped(daemon) == 2
    maker.leave()


def test_a_ring_of_a_stopped_broker_fills_and_is_taken_later(daemon: Daemon, ledger: Ledger) -> None:
    """Nobody takes anything: so much fits, then its maker has to wait. All of it is there in the end, in order."""
    maker, reader = daemon.client(timeout_ms=300), daemon.client()
    for number in range(4):
        maker.ask(f"put first/{number} 4096 1 late")
    maker.ask("flush")
    before = maker.numbers("mine")["ring_entries"]
    put = 0
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED)  # until then it may still take some
    try:
        with pytest.raises(Refused, match="DEADLINE_EXCEEDED"):
            for put in range(ENTRIES + 1):
                maker.ask(f"put late/{put} 4096 {put} late")
        assert put == ENTRIES
        assert maker.numbers("mine")["ring_entries"] == before + ENTRIES
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    for number in range(ENTRIES):
        reader.ask(f"get late/{number} {number}")
    reader.ask("drop")
    maker.ask("flush")
    reader.ask("flush")
    for name in reader.ask("list").split():
        reader.ask(f"withdraw {name}")
    reader.leave()
    maker.leave()
    ledger.settle()


def test_heads_that_cannot_be_and_garbage_cut_their_session_alone(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    maker = daemon.client()
    maker.ask("put a 4096 1")
    chance = random.Random(3)
    liars = 0
    for head in (ENTRIES + 1, 2**40, 2**64 - 1):
        liar = HandMade(daemon, messages)
        liar.set_head(head)
        liar.knock()
        assert liar.line.ended()
        liar.close()
        liars += 1
    for length in (ENTRY_BYTES - 1, 0xFFFF):
        liar = HandMade(daemon, messages)
        liar.enter(b"x" * 100, length)
        liar.knock()
        assert liar.line.ended()
        liar.close()
        liars += 1
    for _ in range(50):
        liar = HandMade(daemon, messages)
        liar.enter(b"\xff\xff\xff" + chance.randbytes(chance.randrange(100)))
        liar.knock()
        assert liar.line.ended()
        liar.close()
        liars += 1
    eventually("each is counted", lambda: daemon.stats()["sessions_cut_total"] == liars)
    maker.ask("put b 4096 1 late")
    for name in ("a", "b"):
        maker.ask(f"get {name} 1")
        maker.ask(f"withdraw {name}")
    maker.leave()
    ledger.settle()
    assert rings_mapped(daemon) == 0


def test_who_is_waited_for_alone_is_heard_when_it_knocks(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Its frames are received in the lane, its ring is the loop's to look into."""
    liar = HandMade(daemon, messages)
    for _ in range(300):
        liar.line.call(GET_STATS, messages.GetStatsRequest(), messages.GetStatsResponse)
    liar.enter(b"\xff\xff\xff")
    liar.knock()
    assert liar.line.ended()
    liar.close()
    ledger.settle()


def test_what_changes_while_it_is_read_costs_nobody(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """A thousand entries, each rewritten while the broker looks: it stays, or it is cut, and others go on."""
    chance = random.Random(9)
    maker, reader = daemon.client(), daemon.client()
    for round_ in range(20):
        liar = HandMade(daemon, messages)
        plausible = messages.PublishRequest(name="x", arena=1, size=256).SerializeToString()
        for _ in range(50):
            liar.enter(plausible)
            with contextlib.suppress(ConnectionError):  # it was cut for what it wrote the last time
                liar.knock()
            at = HEADER_BYTES + chance.randrange(ENTRIES) * ENTRY_BYTES
            liar.ring[at : at + ENTRY_BYTES] = chance.randbytes(ENTRY_BYTES)
            liar.set_head(liar.head + chance.randrange(3))
        maker.ask(f"put p/{round_} 4096 {round_} late")
        reader.ask(f"get p/{round_} {round_}")
        maker.ask(f"withdraw p/{round_}")
        liar.close()
    reader.leave()
    maker.leave()
    ledger.settle()


def test_a_ring_is_its_sessions_alone(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """One a session; nobody writes the Bell; once it is mapped nobody maps the ring writable again."""
    one = HandMade(daemon, messages, sealed=False)
    one.enter(b"\xff\xff")
    one.knock()
    assert one.tail() == 0, "nothing is taken before it is sealed"
    one.set_head(0)
    one.line.call(MAPPED, messages.MappedRequest(ring=True), messages.MappedResponse)
    with pytest.raises(Refused, match="RING_TAKEN"):
        one.browse(RING_PART)
    with pytest.raises(PermissionError):
        mmap.mmap(one.files[0], PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    for file in one.files:
        with pytest.raises(PermissionError):
            mmap.mmap(os.open(f"/proc/self/fd/{file}", os.O_RDWR), 4096, mmap.MAP_SHARED, mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        mmap.mmap(one.files[1], BELL_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        os.ftruncate(one.files[0], 0)
    one.close()
    ledger.settle()


def test_who_knocks_without_a_ring_is_not_heard(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    line = RawLifeline(daemon.directory, messages)
    line.hello()
    for _ in range(1000):
        line.send(RING, flags=NO_REPLY)
    request = messages.BrowseRequest(part=BELL_PART)
    with pytest.raises(Refused, match="NO_RING"):
        line.call(BROWSE, request, messages.BrowseResponse)
    line.send(RING)
    _, status, _, _, _ = line.receive()
    assert status == 3, "INVALID_ARGUMENT: who waits for an answer learns that there is none"
    line.close()
    ledger.settle()
