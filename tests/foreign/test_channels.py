# SPDX-License-Identifier: Apache-2.0
"""Channels at the public door: clients in other languages send and receive with tickets instead of descriptors."""

from __future__ import annotations

import importlib
import json
import mmap
import os
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from foreign_client import Daemon, Session, eventually, refused

Opener = Callable[..., Session]


def open_end(session: Session, role: str, name: str = "frames", **fields: Any) -> Any:
    return session.call("OpenChannel", namespace="default", name=name, role=role, **fields)


def send(session: Session, end: int, content: bytes, **fields: Any) -> Any:
    published, mapping = session.publish("", content, channel=end, **fields)
    mapping.close()
    return published


def assert_because(seen: dict[str, Any], reason: str) -> dict[str, str]:
    """The reason is a field of the ErrorInfo in the status's details; returns its metadata."""
    messages = importlib.import_module("foreign_v1.error_details_pb2")
    status = messages.Status.FromString(seen["trailers"]["grpc-status-details-bin"])
    info = messages.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.reason == reason
    return dict(info.metadata)


def bytes_of(session: Session, received: Any) -> bytes:
    """Reads the only share of an answer through its ticket."""
    (leased,) = received.shares
    (ticket,) = received.tickets
    redeemed, descriptor = session.lifeline.redeem(ticket)
    assert not redeemed.writable
    with mmap.mmap(descriptor, redeemed.handle.arena_size, prot=mmap.PROT_READ) as mapping:
        os.close(descriptor)
        handle = leased.share.handle
        return mapping[handle.offset : handle.offset + leased.share.specs.arrays[0].size]


def test_shares_are_received_once_and_in_order(daemon: Daemon, session: Session, open_session: Opener) -> None:
    reader = open_session(daemon)
    end = open_end(reader, "RECEIVER", capacity=3)
    assert end.capacity == 3
    sender = open_end(session, "SENDER")
    assert sender.capacity == 3
    for content in (b"first", b"second", b"third"):
        published = send(session, sender.channel, content, metadata=content.upper())
        assert published.name == "frames"
    assert session.call("GetStats").queued_shares == 3
    for content in (b"first", b"second", b"third"):
        received = reader.call("Receive", channel=end.channel)
        assert received.shares[0].share.metadata == content.upper()
        assert bytes_of(reader, received) == content
    leases = [leased.lease for leased in received.shares]
    assert reader.call("Release", leases=leases).released == 1


def test_a_receiver_waits_for_a_share(daemon: Daemon, session: Session, open_session: Opener) -> None:
    reader = open_session(daemon)
    end = open_end(reader, "RECEIVER").channel
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED):
        reader.call("Receive", channel=end)
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED):
        reader.call("Receive", channel=end, timeout_ms=20)
    waits = reader.begin("Receive", channel=end, timeout_ms=60_000)
    eventually("the call waits", lambda: session.call("GetStats").waiting == 1)
    send(session, open_end(session, "SENDER").channel, b"here")
    assert bytes_of(reader, waits.result()) == b"here"


def test_a_sender_waits_for_room(daemon: Daemon, session: Session, open_session: Opener) -> None:
    reader = open_session(daemon)
    end = open_end(reader, "RECEIVER", capacity=1).channel
    sender = open_end(session, "SENDER").channel
    send(session, sender, b"fills it")
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "full"):
        send(session, sender, b"no room", timeout_ms=20)
    allocated = session.call("Allocate", namespace="default", size=4096)
    redeemed, descriptor = session.lifeline.redeem(allocated.ticket)
    os.close(descriptor)
    session.call("Mapped", arena=redeemed.handle.arena)
    spec = {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [4], "size": 4}
    fields = {"arena": redeemed.handle.arena, "arena_generation": redeemed.handle.generation, "size": 4}
    waits = session.begin("Publish", namespace="default", channel=sender, timeout_ms=60_000, specs={"arrays": [spec]}, **fields)
    eventually("the call waits", lambda: session.call("GetStats").waiting == 1)
    assert bytes_of(reader, reader.call("Receive", channel=end)) == b"fills it"
    assert waits.result().name == "frames"
    assert len(reader.call("Receive", channel=end).shares) == 1


def test_the_stream_ends_when_its_senders_have_closed(daemon: Daemon, session: Session, open_session: Opener) -> None:
    reader = open_session(daemon)
    end = open_end(reader, "RECEIVER").channel
    first, second = (open_end(session, "SENDER").channel for _ in range(2))
    send(session, second, b"last")
    session.call("CloseChannel", channel=first)
    session.call("CloseChannel", channel=second)
    assert bytes_of(reader, reader.call("Receive", channel=end)) == b"last"
    with refused(grpc.StatusCode.OUT_OF_RANGE) as details:
        reader.call("Receive", channel=end)
    assert_because(details, "CHANNEL_ENDED")
    with refused(grpc.StatusCode.NOT_FOUND) as details:
        session.call("CloseChannel", channel=first)
    assert_because(details, "CHANNEL_NOT_OPEN")


@pytest.mark.parametrize("how", ["abandon", "end"])
def test_a_senders_death_is_detected(daemon: Daemon, session: Session, open_session: Opener, how: str) -> None:
    reader = open_session(daemon)
    end = open_end(reader, "RECEIVER").channel
    sender = open_end(session, "SENDER").channel
    waits = reader.begin("Receive", channel=end, timeout_ms=60_000)
    if how == "abandon":
        session.call("CloseChannel", channel=sender, abandoned=True)
    else:
        session.close()
    with refused(grpc.StatusCode.ABORTED) as details:
        waits.result()
    told = assert_because(details, "SENDER_ABANDONED" if how == "abandon" else "SENDER_DIED")
    assert (told["notice"], told["stream"], told["shares"], told["missing"]) == ("1", "1", "0", "false")
    # The request that has seen the notice goes on with the next sender; one that has not gets the same notice.
    back = open_session(daemon)
    send(back, open_end(back, "SENDER").channel, b"back")
    with refused(grpc.StatusCode.ABORTED):
        reader.call("Receive", channel=end)
    assert bytes_of(reader, reader.call("Receive", channel=end, seen_notice=int(told["notice"]))) == b"back"


def test_a_sender_may_ask_for_its_notices(daemon: Daemon, session: Session, open_session: Opener) -> None:
    reader = open_session(daemon)
    sender, end = open_end(session, "SENDER").channel, open_end(reader, "RECEIVER").channel
    send(session, sender, b"queued")
    for timeout_ms in (0, 60_000):
        assert not session.call("Receive", channel=sender, timeout_ms=timeout_ms).shares, "at once, and nothing"
    reader.call("CloseChannel", channel=end, abandoned=True)
    with refused(grpc.StatusCode.ABORTED) as details:
        session.call("Receive", channel=sender)
    told = assert_because(details, "RECEIVER_ABANDONED")
    assert not session.call("Receive", channel=sender, seen_notice=int(told["notice"])).shares


def test_an_end_belongs_to_one_session_and_has_one_role(daemon: Daemon, session: Session, open_session: Opener) -> None:
    other = open_session(daemon)
    receiver = open_end(session, "RECEIVER").channel
    for verb in ("Receive", "CloseChannel"):
        with refused(grpc.StatusCode.NOT_FOUND) as details:
            other.call(verb, channel=receiver)
        assert_because(details, "CHANNEL_NOT_OPEN")
    with refused(grpc.StatusCode.FAILED_PRECONDITION) as details:
        send(session, receiver, b"the wrong way")
    assert_because(details, "WRONG_END")
    with refused(grpc.StatusCode.INVALID_ARGUMENT):
        open_end(session, "ROLE_UNSPECIFIED")
    with refused(grpc.StatusCode.FAILED_PRECONDITION) as details:
        open_end(other, "SENDER", capacity=5)
        open_end(other, "SENDER", capacity=6)
    assert_because(details, "CHANNEL_CAPACITY")


def test_shares_are_freed_when_the_last_receiver_leaves(daemon: Daemon, session: Session, open_session: Opener) -> None:
    reader = open_session(daemon)
    end = open_end(reader, "RECEIVER").channel
    sender = open_end(session, "SENDER").channel
    send(session, sender, b"dropped")
    reader.call("CloseChannel", channel=end)
    assert session.call("GetStats").queued_shares == 0
    with refused(grpc.StatusCode.FAILED_PRECONDITION) as details:
        send(session, sender, b"to nobody")
    assert_because(details, "NO_RECEIVER")
    session.call("CloseChannel", channel=sender)
    assert session.call("GetStats").channels == 0


def logged(daemon: Daemon, event: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, daemon.log.read_text().splitlines()) if line.get("event") == event]


def test_the_log_tells_who_waits_for_a_channel(start: Callable[..., Daemon], open_session: Opener) -> None:
    """After ten seconds, once for each request, with the processes of the other side."""
    daemon = start("--log-format", "json")
    reader, writer = open_session(daemon, client="infer"), open_session(daemon, client="prep")
    empty = open_end(reader, "RECEIVER", "empty").channel
    open_end(writer, "SENDER", "empty")
    full = open_end(writer, "SENDER", "full", capacity=1).channel
    open_end(reader, "RECEIVER", "full")
    send(writer, full, b"1")
    allocated = writer.call("Allocate", namespace="default", size=10)
    redeemed, descriptor = writer.lifeline.redeem(allocated.ticket)
    os.close(descriptor)
    writer.call("Mapped", arena=redeemed.handle.arena)
    spec = {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [10], "size": 10}
    waits = [
        reader.begin("Receive", channel=empty, timeout_ms=60_000),
        writer.begin("Publish", namespace="default", name="", channel=full, arena=redeemed.handle.arena, size=10, timeout_ms=60_000,
                     arena_generation=redeemed.handle.generation, specs={"arrays": [spec]}),
    ]  # fmt: skip
    eventually("both are told", lambda: len(logged(daemon, "channel_awaited")) == 2)
    lines = {line["client"]: line for line in logged(daemon, "channel_awaited")}
    assert lines["infer"]["level"] == "info"
    for words in ("infer (process ", "waited for 10 s to receive from the channel 'empty'", "0 of ", "senders: prep (process "):
        assert words in lines["infer"]["message"]
    for words in ("for room in the channel 'full'", "1 of 1 arrays queued", "receivers: infer (process "):
        assert words in lines["prep"]["message"]
    for wait in waits:
        wait.cancel()
