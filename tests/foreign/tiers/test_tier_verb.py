# SPDX-License-Identifier: Apache-2.0
"""The verb Tier as a client in another language uses it: over gRPC, with tickets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from foreign_client import Daemon, Session, eventually, refused

LIST, OUT, IN, KEEP, VERIFY = range(1, 6)
CONTENT = bytes(range(256)) * 64


@pytest.fixture
def session(tmp_path: Path, start: Callable[..., Daemon], open_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("ARRAYBRIDGED_TIERS__DIRECTORY", str(tmp_path / "files"))
    return open_session(start("--cache", "0", "--host-capacity", "1MiB"))


def rows(session: Session) -> list[tuple[str, bool, bool]]:
    return [(row.name, row.in_memory, row.durable) for row in session.call("Tier", action=LIST).shares]


def put(session: Session, name: str, content: bytes = CONTENT) -> int:
    published, mapping = session.publish(name, content)
    mapping.close()
    return int(published.generation)


def test_bytes_go_out_and_come_back_with_the_next_acquire(session: Session, tmp_path: Path) -> None:
    generation = put(session, "m")
    (row,) = session.call("Tier", action=OUT, name="m").shares
    assert (row.name, row.generation, row.in_memory) == ("m", generation, False)
    assert rows(session) == [("m", False, False)]
    assert session.call("List").shares[0].share.handle.kind == 0
    assert session.read("m")[: len(CONTENT)] == CONTENT
    assert rows(session) == []
    eventually("the file goes", lambda: [each.name for each in (tmp_path / "files").iterdir()] == ["lock"])


def test_a_kept_share_has_both(session: Session) -> None:
    put(session, "m")
    session.call("Tier", action=KEEP, name="m")
    assert rows(session) == [("m", True, True)]
    session.call("Tier", action=VERIFY, name="m")
    session.call("Tier", action=OUT, name="m")
    assert rows(session) == [("m", False, True)]
    session.call("Tier", action=IN, name="m")
    assert rows(session) == [("m", True, True)]


def test_what_is_leased_stays(session: Session) -> None:
    put(session, "m")
    leased = session.call("Acquire", shares=[{"name": "m"}])
    with refused(grpc.StatusCode.FAILED_PRECONDITION):
        session.call("Tier", action=OUT, name="m")
    session.call("Release", leases=[leased.shares[0].lease])
    session.call("Tier", action=OUT, name="m")


def test_hostile_requests_are_refused(session: Session) -> None:
    for fields in ({"action": 0}, {"action": 77}):
        with refused(grpc.StatusCode.INVALID_ARGUMENT):
            session.call("Tier", **fields)
    for fields in ({"action": OUT, "name": "none"}, {"action": VERIFY, "name": "none"}):
        with refused(grpc.StatusCode.NOT_FOUND):
            session.call("Tier", **fields)
    with refused(grpc.StatusCode.INVALID_ARGUMENT):
        session.call("Tier", action=IN)  # without a name


def test_an_allocate_that_waits_moves_out_what_nobody_reads(session: Session, open_session: Callable[..., Session]) -> None:
    """Four shares of 256 KiB fill the device; the next three push the oldest ones out, and all are read again."""
    sizes = 256 << 10
    writers = [open_session(session.daemon) for _ in range(7)]  # each gives its arena back
    for number, writer in enumerate(writers):
        allocated = writer.call("Allocate", size=sizes, timeout_ms=30_000)
        arena = allocated.handle.arena
        assert arena, allocated
        writer.call("Release", arenas=[arena])
        put(writer, f"s{number}", bytes([number]) * sizes)
        writer.close()
    out = [name for name, in_memory, _ in rows(session) if not in_memory]
    assert len(out) >= 3 and "s0" in out
    for number in range(7):
        assert session.read(f"s{number}")[:sizes] == bytes([number]) * sizes
