# SPDX-License-Identifier: Apache-2.0
"""Clients and brokers of different versions: fault 31. They are served, or refused with the reason; they never crash."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Client, Daemon, Ledger, RawLifeline, Refused, eventually
from relay import DEADLINE, NO_REPLY, QUEUED, Frame, Messages, Relay, with_unknown_fields

BROWSE, OPEN_SESSION, GET_STATS = 13, 1, 11
UNIMPLEMENTED = 12
# Fields that no version has yet, of each wire type: varint, 64 bits, bytes, 32 bits.
UNKNOWN = b"".join(
    [
        b"\xe8\xf7\x07\x07",  # field 16253: 7
        b"\xf1\xf7\x07" + bytes(8),  # field 16254
        b"\xfa\xf7\x07\x05later",  # field 16255
        b"\x85\xf8\x07" + bytes(4),  # field 16256
    ]
)
SESSION = (
    "put a 65536 1", "get a 1", "put a 65536 2 replace", "drop", "get a 2", "get a 2 private", "tree t 4096 3 5", "get t 3",
    "many 2 a", "list", "flush", "drop", "open c receive", "open c send", "send c 4096 5 5000", "receive c 5000",
    "close c receive", "close c send", "withdraw t", "withdraw a", "flush",
)  # fmt: skip


@contextlib.contextmanager
def relayed(daemon: Daemon, **changes: Callable[[Frame], Frame | None]) -> Iterator[Relay]:
    relay = Relay(daemon.directory.parent / "relay", daemon.directory, **changes)
    try:
        yield relay
    finally:
        relay.close()


def client_of(daemon: Daemon, relay: Relay, timeout_ms: int = 30_000) -> Client:
    client = Client(relay.directory, "default", timeout_ms)
    daemon.clients.append(client)
    return client


def use(client: Client) -> None:
    """Everything that a client does, often enough that it would use queue and catalogue."""
    for _ in range(3):
        for line in SESSION:
            client.repeat(line)


@pytest.mark.parametrize("newer", ["client", "broker", "both"])
def test_unknown_fields_are_ignored(daemon: Daemon, ledger: Ledger, messages: Any, newer: str) -> None:
    """Fault 31: every message, and every message in it, has fields of each wire type that the receiver does not know."""
    read = Messages(messages)
    changed = set()

    def extend(frame: Frame, message: Any) -> Frame:
        if message is None or frame.flags & QUEUED:
            return frame
        changed.add(frame.verb)
        return dataclasses.replace(frame, payload=with_unknown_fields(message, UNKNOWN).SerializeToString())

    ways: dict[str, Callable[[Frame], Frame | None]] = {}
    if newer in ("client", "both"):
        ways["ask"] = lambda frame: extend(frame, read.of_request(frame))
    if newer in ("broker", "both"):
        ways["tell"] = lambda frame: extend(frame, read.of_answer(frame))
    with relayed(daemon, **ways) as relay:
        client = client_of(daemon, relay)
        use(client)
        client.leave()
    assert len(changed) >= 8, changed
    ledger.settle()


def test_a_broker_without_shared_pages(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 31: an older broker does not know Browse and tells neither its clock nor its newer limits; clients use calls."""
    read = Messages(messages)

    def refuse(frame: Frame) -> Frame | None:
        if frame.verb != BROWSE or frame.flags & NO_REPLY:
            return None
        error = messages.Error(message="unknown verb").SerializeToString()
        return Frame(frame.verb, 0, UNIMPLEMENTED, frame.request, error, [])

    def forget(frame: Frame) -> Frame:
        message = read.of_answer(frame) if frame.verb == OPEN_SESSION else None
        if message is None:
            return frame
        for field in ("clock_ms", "capabilities", "boot_id", "exit_when_idle_ms"):
            message.server.ClearField(field)
        for field in ("request_timeout_max_ms", "own_arena_bytes_min", "arena_idle_ms", "names_per_request_max", "note_bytes_max"):
            message.server.limits.ClearField(field)
        return dataclasses.replace(frame, payload=message.SerializeToString())

    with relayed(daemon, instead=refuse, tell=forget) as relay:
        client = client_of(daemon, relay)
        use(client)
        assert client.numbers("mine")["catalogue_acquires"] == 0
        client.leave()
    assert BROWSE in relay.verbs, "it never asked for a page"
    ledger.settle()


def test_a_client_that_states_no_deadlines(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 31: an older client sends no deadlines; the flag and the number in the header's status are newer."""

    def forget(frame: Frame) -> Frame:
        return dataclasses.replace(frame, flags=frame.flags & ~DEADLINE, status=0)

    with relayed(daemon, ask=forget) as relay:
        client = client_of(daemon, relay)
        use(client)
        client.leave()
    ledger.settle()


@pytest.mark.parametrize(("oldest", "newest"), [(0, 0), (2, 2), (2, 1 << 31), (5, 1)])
def test_a_client_of_another_protocol_is_refused(daemon: Daemon, ledger: Ledger, messages: Any, oldest: int, newest: int) -> None:
    """Fault 31: the refusal has both ranges of versions."""
    line = RawLifeline(daemon.directory, messages)
    hello = messages.OpenSessionRequest(protocol_min=oldest, protocol_max=newest, client="other")
    with pytest.raises(Refused, match=f"^9 .*protocol {oldest} to {newest}.*1"):
        line.call(OPEN_SESSION, hello, messages.OpenSessionResponse)
    line.close()
    ledger.settle()


def test_a_client_of_several_protocols_gets_the_one_that_both_speak(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    line = RawLifeline(daemon.directory, messages)
    hello = messages.OpenSessionRequest(protocol_min=1, protocol_max=77, client="newer")
    answer, _ = line.call(OPEN_SESSION, hello, messages.OpenSessionResponse)
    assert answer.protocol == 1
    number = line.send(GET_STATS, b"", flags=0x8000 | 0x40)  # flags that no version has yet
    _, status, echoed, payload, _ = line.receive()
    assert (status, echoed) == (0, number) and messages.GetStatsResponse.FromString(payload).sessions == 2
    line.close()
    ledger.settle()


def test_a_broker_of_another_protocol_is_named(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 31: a client tells its user which version the broker speaks."""
    read = Messages(messages)

    def newer(frame: Frame) -> Frame:
        message = read.of_answer(frame) if frame.verb == OPEN_SESSION else None
        if message is None:
            return frame
        message.protocol = 2
        return dataclasses.replace(frame, payload=message.SerializeToString())

    with relayed(daemon, tell=newer) as relay:
        client = client_of(daemon, relay)
        with pytest.raises(Refused, match="FAILED_PRECONDITION.*protocol 2.*1"):
            client.ask("stats")
        client.leave()
    ledger.settle()


def test_answers_that_only_a_newer_client_understands(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 31: unknown codes, kinds of devices and handles are errors or are passed over; the client goes on."""
    read = Messages(messages)
    strange = {"code": False, "devices": False}

    def newer(frame: Frame) -> Frame:
        if frame.verb == GET_STATS and strange["code"]:
            return dataclasses.replace(frame, status=977, payload=messages.Error(message="of a newer kind").SerializeToString())
        message = read.of_answer(frame) if frame.verb == OPEN_SESSION else None
        if message is None:
            return frame
        strange["devices"] = True
        message.server.devices.add(kinds=[77, 1], capacity_bytes=1 << 40).device.type = 99
        message.server.capabilities.append("teleport")
        return dataclasses.replace(frame, payload=message.SerializeToString())

    with relayed(daemon, tell=newer) as relay:
        client = client_of(daemon, relay)
        use(client)
        client.leave()
        strange["code"] = True
        other = client_of(daemon, relay)
        with pytest.raises(Refused, match="of a newer kind"):
            other.ask("stats")
        strange["code"] = False
        other.ask("stats")
        use(other)
        other.leave()
    assert strange["devices"]
    ledger.settle()


def test_frames_that_only_a_newer_client_expects(daemon: Daemon, ledger: Ledger, messages: Any, tmp_path: Path) -> None:
    """Fault 31: a frame that answers no request, of an unknown verb, disturbs no call; every call has an answer."""
    sent = []

    def surprise(frame: Frame) -> Frame:
        if frame.verb != GET_STATS or sent:
            return frame
        sent.append(frame.request)
        return Frame(200, 0x4000, 0, 1 << 60, UNKNOWN, [])  # instead of the answer

    with relayed(daemon, tell=surprise) as relay:
        client = client_of(daemon, relay, timeout_ms=3000)
        with pytest.raises(Refused, match="DEADLINE_EXCEEDED|UNAVAILABLE"):
            client.ask("stats")
        client.insist("stats")
        use(client)
        client.leave()
    assert sent
    eventually("no session of it is left", lambda: daemon.stats()["sessions"] == 1)
    ledger.settle()
