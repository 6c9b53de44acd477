# SPDX-License-Identifier: Apache-2.0
"""Sessions that use their queues by hand, die, write garbage and are stopped: shares are complete, others continue, and no byte leaks."""

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
from harness import BROWSE, DOORBELL, GET_STATS, MAPPED, PUBLISH, Daemon, Ledger, RawLifeline, Refused, eventually

# proto/boundary/layouts/{spsc,session}_queue.h
QUEUE_PART = 2  # of a Browse
SLOTS, SLOT_BYTES = 256, 128
HEAD, TAKEN, SERVED, SLOTS_AT = 128, 256, 264, 512  # offsets in a page
QUEUE_BYTES = SLOTS * SLOT_BYTES
PAGE_BYTES = SLOTS_AT + QUEUE_BYTES
PAYLOAD_BYTES_MAX = 4064
ENTRY = struct.Struct("<BBHIQ")  # verb, flags, bytes, status, id
WAITED, UNWAITED, ON_SOCKET = 0, 1, 2  # flags of an entry
NO_REPLY, QUEUED = 1, 4  # flags of a frame
INVALID_ARGUMENT, UNIMPLEMENTED = 3, 12
GARBAGE = b"\xff\xff\xff"  # no message begins with these bytes


class HandMade:
    """A session that maps its queue by hand and writes anything into it."""

    def __init__(self, daemon: Daemon, messages: Any, sealed: bool = True):
        self.line = RawLifeline(daemon.directory, messages)
        self.line.hello()
        self.messages = messages
        self.head = 0  # slots that have been written
        self.reaped = 0  # slots of completions that have been read
        self.next = 1000
        self.files = self.browse()
        self.requests = mmap.mmap(self.files[0], PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.completions = mmap.mmap(self.files[1], PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
        if sealed:
            self.seal()

    def seal(self) -> None:
        self.line.call(MAPPED, self.messages.MappedRequest(queue=True), self.messages.MappedResponse)

    def browse(self) -> list[int]:
        request = self.messages.BrowseRequest(part=QUEUE_PART)
        _, descriptors = self.line.call(BROWSE, request, self.messages.BrowseResponse)
        assert len(descriptors) == 2
        return descriptors

    def submit(self, payload: bytes, flags: int = UNWAITED, verb: int = PUBLISH, length: int | None = None) -> int:
        """Writes an entry and returns its id. `length`: the length that the entry claims."""
        number, self.next = self.next, self.next + 1
        entry = ENTRY.pack(verb, flags, len(payload) if length is None else length, 0, number) + payload
        for at, byte in enumerate(entry, self.head * SLOT_BYTES):
            self.requests[SLOTS_AT + at % QUEUE_BYTES] = byte
        self.set_head(self.head + -(-len(entry) // SLOT_BYTES))
        return number

    def set_head(self, head: int) -> None:
        self.head = head
        struct.pack_into("<Q", self.requests, HEAD, head % 2**64)

    def set_taken(self, slots: int) -> None:
        struct.pack_into("<Q", self.requests, TAKEN, slots)

    def send_doorbell(self) -> None:
        self.line.send(DOORBELL, flags=NO_REPLY)

    def send_last_doorbell(self) -> None:
        """For an entry that ends the session. A daemon that polls may have read the entry before."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_doorbell()

    def call(self) -> None:
        """A call by the socket: the daemon has read every frame that was sent before it."""
        self.line.call(GET_STATS, self.messages.GetStatsRequest(), self.messages.GetStatsResponse)

    def theirs(self, offset: int) -> int:
        return int(struct.unpack_from("<Q", self.completions, offset)[0])

    def reap(self) -> tuple[int, int, int, bytes] | None:
        """flags, status, id and payload of the next completion, if there is one."""
        if self.theirs(HEAD) == self.reaped:
            return None
        start = self.reaped * SLOT_BYTES
        _, flags, length, status, number = ENTRY.unpack(self._bytes(start, ENTRY.size))
        payload = self._bytes(start + ENTRY.size, length)
        self.reaped += -(-(ENTRY.size + length) // SLOT_BYTES)
        self.set_taken(self.reaped)
        return flags, status, number, payload

    def _bytes(self, start: int, count: int) -> bytes:
        return bytes(self.completions[SLOTS_AT + at % QUEUE_BYTES] for at in range(start, start + count))

    def completion(self) -> tuple[int, int, int, bytes]:
        found: tuple[int, int, int, bytes] = eventually("a completion", self.reap)
        return found

    def close(self) -> None:
        self.line.close()
        self.requests.close()
        self.completions.close()
        for file in self.files:
            os.close(file)


def publish_that_fails(messages: Any) -> bytes:
    """A publish with an arena that does not exist."""
    request = messages.PublishRequest(name="x", arena=1, size=256)
    request.specs.arrays.add(code=1, bits=8, lanes=1, dtype="uint8", shape=[256], size=256)
    return bytes(request.SerializeToString())


def pages_mapped(daemon: Daemon) -> int:
    """The number of pages of queues that the daemon has mapped: two for each session."""
    lines = Path(f"/proc/{daemon.pid}/maps").read_text().splitlines()
    return sum("arraybridge-requests" in line or "arraybridge-completions" in line for line in lines)


def test_many_kills_leave_complete_shares_and_leak_no_byte(daemon: Daemon, ledger: Ledger) -> None:
    """SIGKILL at a random moment of unwaited publishes: each published share has all bytes that its producer wrote."""
    chance = random.Random(7)
    before = pages_mapped(daemon)  # those of the warden
    reader = daemon.client()
    found = 0
    makers = []
    number = 0
    # 30 makers, and as many more as it takes on a stalled machine until enough is published.
    while number < 30 or (number < 300 and len(reader.ask("list storm/").split()) < 300):
        maker = daemon.client()
        maker.tell(f"storm storm/{number} 4096 {number} 100000000")
        makers.append(maker)
        number += 1
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
    for seed in range(number):
        for name in reader.ask(f"list storm/{seed}/").split():
            reader.ask(f"get {name} {seed}")
            reader.ask(f"withdraw {name}")
            found += 1
        reader.ask("drop")
    assert found > 100, "nothing was published"
    reader.leave()
    ledger.settle()
    assert pages_mapped(daemon) == before


@pytest.mark.not_over(["cuda_vmm", "cuda_ipc"], "only shares of host memory are published without waiting")
def test_the_storms_go_through_queues(daemon: Daemon) -> None:
    before = pages_mapped(daemon)
    maker = daemon.client()
    assert int(maker.ask("storm storm 4096 1 500")) > 490
    assert pages_mapped(daemon) == before + 2
    maker.leave()


def test_the_queue_of_a_stopped_broker_fills_and_is_served_later(daemon: Daemon, ledger: Ledger) -> None:
    """No entry is taken, so the queue fills and the producer must wait. In the end all entries are served in order."""
    maker, reader = daemon.client(timeout_ms=3000), daemon.client()
    for number in range(4):
        maker.repeat(f"put first/{number} 4096 1 late")
    maker.repeat("flush")
    before = maker.numbers("mine")["unwaited_publishes"]
    put = 0
    daemon.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED)  # until then it may still take entries
    try:
        with pytest.raises(Refused, match="DEADLINE_EXCEEDED"):
            for put in range(SLOTS + 1):
                maker.ask(f"put late/{put} 4096 {put} late")
        assert SLOTS - 2 <= put <= SLOTS, "the queue may also contain a Release"
        assert maker.numbers("mine")["unwaited_publishes"] == before + put
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    for number in range(put):
        reader.ask(f"get late/{number} {number}")
    reader.ask("drop")
    maker.repeat("flush")
    reader.ask("flush")
    for name in reader.ask("list").split():
        reader.ask(f"withdraw {name}")
    reader.leave()
    maker.leave()
    ledger.settle()


def test_impossible_entries_end_only_their_session(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    maker = daemon.client()
    maker.ask("put a 4096 1")
    chance = random.Random(3)
    liars = 0

    def expect_cut(liar: HandMade) -> None:
        nonlocal liars
        liar.send_last_doorbell()
        assert liar.line.ended()
        liar.close()
        liars += 1

    for head in (SLOTS + 1, 2**40, 2**64 - 1):
        liar = HandMade(daemon, messages)
        liar.set_head(head)
        expect_cut(liar)
    for length in (PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 1, 0xFFFF):  # the first one is longer than the entry
        liar = HandMade(daemon, messages)
        liar.submit(b"x" * 100, length=length)
        expect_cut(liar)
    for _ in range(50):
        liar = HandMade(daemon, messages)
        liar.submit(GARBAGE + chance.randbytes(chance.randrange(1000)), WAITED)
        expect_cut(liar)
    eventually("each is counted", lambda: daemon.stats()["sessions_cut_total"] == liars)
    maker.ask("put b 4096 1 late")
    for name in ("a", "b"):
        maker.ask(f"get {name} 1")
        maker.ask(f"withdraw {name}")
    maker.leave()
    ledger.settle()


def test_requests_and_frames_belong_together(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """An entry refers to the frame that was sent before it: neither may come alone."""
    honest = HandMade(daemon, messages)
    honest.line.send(GET_STATS, flags=QUEUED)
    number = honest.submit(b"", ON_SOCKET, GET_STATS)
    honest.send_doorbell()
    _, status, echoed, payload = honest.completion()
    assert (status, echoed) == (0, number)
    assert messages.GetStatsResponse.FromString(payload).sessions >= 1
    honest.close()

    entry_alone = HandMade(daemon, messages)
    entry_alone.submit(b"", ON_SOCKET, GET_STATS)
    entry_alone.send_last_doorbell()
    assert entry_alone.line.ended()
    entry_alone.close()

    two_frames = HandMade(daemon, messages)
    for _ in range(2):
        two_frames.line.send(GET_STATS, flags=QUEUED)
    assert two_frames.line.ended()
    two_frames.close()

    no_queue = RawLifeline(daemon.directory, messages)
    no_queue.hello()
    no_queue.send(GET_STATS, flags=QUEUED)
    assert no_queue.ended()
    no_queue.close()
    ledger.settle()


def test_a_refused_publish_has_a_completion(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    one = HandMade(daemon, messages)
    unknown = one.submit(b"", WAITED, 77)
    failing = one.submit(publish_that_fails(messages))
    none = one.submit(GARBAGE)
    one.send_doorbell()
    assert one.completion()[:3] == (0, UNIMPLEMENTED, unknown)
    flags, _, echoed, payload = one.completion()
    assert (flags, echoed) == (UNWAITED, failing)
    assert messages.Error.FromString(payload).reason == "ARENA_NOT_FOUND"
    assert one.completion()[:3] == (UNWAITED, INVALID_ARGUMENT, none)
    eventually("all of them are served", lambda: one.theirs(SERVED) == one.head)
    one.close()
    ledger.settle()


def test_unread_completions_block_only_their_session(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    lazy = HandMade(daemon, messages)
    other = daemon.client()
    failing = publish_that_fails(messages)
    for _ in range(SLOTS):
        lazy.submit(failing)
    lazy.send_doorbell()
    eventually("its page of completions is nearly full", lambda: lazy.theirs(HEAD) >= SLOTS - 2)
    lazy.submit(failing)
    lazy.submit(failing)
    for _ in range(3):
        lazy.send_doorbell()
        lazy.call()
    assert lazy.theirs(TAKEN) <= SLOTS < lazy.head, "there is no room for another completion"
    other.ask("put a 4096 1")
    other.ask("withdraw a")
    other.leave()
    while lazy.reaped < lazy.head:
        lazy.send_doorbell()
        lazy.completion()
    lazy.close()
    ledger.settle()


def test_after_an_impossible_count_of_completions_no_request_is_taken(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    liar = HandMade(daemon, messages)
    liar.set_taken(5)
    liar.submit(b"", WAITED, GET_STATS)
    liar.send_doorbell()
    liar.call()
    assert (liar.theirs(TAKEN), liar.theirs(HEAD)) == (0, 0)
    liar.close()
    ledger.settle()


def test_a_single_session_is_served_after_its_doorbell(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    liar = HandMade(daemon, messages)
    for _ in range(300):
        liar.call()
    liar.submit(GARBAGE, WAITED)
    liar.send_last_doorbell()
    assert liar.line.ended()
    liar.close()
    ledger.settle()


def test_entries_that_change_during_a_read_affect_no_other_session(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """A thousand entries, each rewritten while the broker reads it: the session remains or is ended, and others continue."""
    chance = random.Random(9)
    maker, reader = daemon.client(), daemon.client()
    for round_ in range(20):
        liar = HandMade(daemon, messages)
        plausible = publish_that_fails(messages)
        for _ in range(50):
            liar.submit(plausible, chance.choice((WAITED, UNWAITED)))
            with contextlib.suppress(ConnectionError):  # it was ended for its previous entry
                liar.send_doorbell()
            at = SLOTS_AT + chance.randrange(SLOTS) * SLOT_BYTES
            liar.requests[at : at + SLOT_BYTES] = chance.randbytes(SLOT_BYTES)
            liar.set_taken(chance.randrange(3) * liar.theirs(HEAD))
            liar.set_head(liar.head + chance.randrange(3))
        maker.ask(f"put p/{round_} 4096 {round_} late")
        reader.ask(f"get p/{round_} {round_}")
        maker.ask(f"withdraw p/{round_}")
        liar.close()
    reader.leave()
    maker.leave()
    ledger.settle()


def test_only_its_session_can_map_a_queue(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """One per session; no session writes completions; after both pages are mapped no process can map the requests writable."""
    one = HandMade(daemon, messages, sealed=False)
    one.submit(GARBAGE, WAITED)
    one.send_doorbell()
    one.call()
    assert one.theirs(TAKEN) == 0, "no entry is taken before the queue is sealed"
    one.set_head(0)
    one.seal()
    one.seal()
    with pytest.raises(Refused, match="QUEUE_TAKEN"):
        one.browse()
    with pytest.raises(PermissionError):
        mmap.mmap(one.files[0], PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    for file in one.files:
        with pytest.raises(PermissionError):
            mmap.mmap(os.open(f"/proc/self/fd/{file}", os.O_RDWR), 4096, mmap.MAP_SHARED, mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        mmap.mmap(one.files[1], PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        os.ftruncate(one.files[0], 0)
    one.close()
    ledger.settle()


def test_doorbells_without_a_queue_are_ignored(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    line = RawLifeline(daemon.directory, messages)
    line.hello()
    for _ in range(1000):
        line.send(DOORBELL, flags=NO_REPLY)
    with pytest.raises(Refused, match="NO_QUEUE"):
        line.call(MAPPED, messages.MappedRequest(queue=True), messages.MappedResponse)
    line.send(DOORBELL)
    _, status, _, _, _ = line.receive()
    assert status == INVALID_ARGUMENT, "a doorbell that wants an answer is refused"
    line.close()
    ledger.settle()
