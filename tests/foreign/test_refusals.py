# SPDX-License-Identifier: Apache-2.0
"""Refusals of the public door, and that they do not affect other clients."""

from __future__ import annotations

import importlib
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from foreign_client import Daemon, Lifeline, Refused, Session, eventually, refused

NOT_FOUND = 5


@pytest.mark.parametrize(
    "verb", ["Allocate", "Mapped", "Publish", "Acquire", "Export", "Release", "Withdraw", "List", "GetStats", "Inspect", "Claim", "Tier"]
)
def test_every_other_verb_needs_a_session(daemon: Daemon, generated: tuple[Any, Any], verb: str) -> None:
    messages, service = generated
    with daemon.channel() as channel:
        call = getattr(service.BrokerStub(channel), verb)
        request = getattr(messages, f"{verb}Request")()
        with refused(grpc.StatusCode.UNAUTHENTICATED, "names no session"):
            call(request)
        for token in ("", "00" * 16, "0" * 31, "zz" * 16, "00" * 17):
            with refused(grpc.StatusCode.UNAUTHENTICATED, "no open session"):
                call(request, metadata=[("arraybridge-session", token)])


def test_a_ticket_is_redeemed_once(session: Session) -> None:
    ticket = session.call("Allocate", namespace="default", size=1).ticket
    _, descriptor = session.lifeline.redeem(ticket)
    os.close(descriptor)
    with pytest.raises(Refused) as again:
        session.lifeline.redeem(ticket)
    assert again.value.code == NOT_FOUND


def test_used_foreign_and_invented_tickets_get_the_same_answer(
    daemon: Daemon, session: Session, open_session: Callable[..., Session]
) -> None:
    ticket = session.call("Allocate", namespace="default", size=1).ticket
    other = open_session(daemon)
    answers = []
    for token in (ticket.token, bytes(16), b"", b"short"):
        with pytest.raises(Refused) as error:
            other.lifeline.redeem(session.messages.Ticket(token=token))
        answers.append((error.value.code, str(error.value)))
    assert answers == [answers[0]] * 4 and answers[0][0] == NOT_FOUND
    _, descriptor = session.lifeline.redeem(ticket)  # the attempt of another session has not used it up
    os.close(descriptor)


def test_an_expired_ticket_is_refused(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    session = open_session(start(ticket_lifetime="1ms"))
    assert session.lifeline
    ticket = session.call("Allocate", namespace="default", size=1).ticket
    assert ticket.lifetime_ms == 1
    issued = time.monotonic()
    while time.monotonic() < issued + 0.002:
        pass  # waits for its lifetime, on the clock of both processes
    with pytest.raises(Refused) as late:
        session.lifeline.redeem(ticket)
    assert late.value.code == NOT_FOUND


def test_tickets_are_counted(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    session = open_session(start())
    session.publish("x", b"1")
    for _ in range(4):
        session.call("Acquire", namespace="default", shares=[{"name": "x"}] * 256)
    arenas = session.call("GetStats").arenas
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "tickets_per_session (1024)"):
        session.call("Allocate", namespace="default", size=1)
    eventually("the arena without a ticket goes", lambda: session.call("GetStats").arenas == arenas)


def test_a_lifeline_joins_only_with_a_token(daemon: Daemon, session: Session) -> None:
    for token in (bytes(16), b"x", session.opened.token + b"x"):
        with pytest.raises((Refused, EOFError)):
            Lifeline(daemon, session.messages, token)


def test_an_incompatible_protocol_is_refused(daemon: Daemon, open_session: Callable[..., Session]) -> None:
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "7 to 9"):
        open_session(daemon, protocol_min=7, protocol_max=9)


def test_sessions_are_counted(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = start(sessions_per_uid="2")
    for _ in range(2):
        open_session(daemon)
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "2"):
        open_session(daemon)


def test_an_oversize_message_is_refused_and_affects_no_other_session(session: Session) -> None:
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "65536"):
        session.call("Publish", metadata=bytes(70_000))
    assert session.call("GetStats").sessions == 1


def test_missing_objects_are_refused(session: Session) -> None:
    with refused(grpc.StatusCode.NOT_FOUND, "absent"):
        session.call("Acquire", namespace="default", shares=[{"name": "absent"}])
    with refused(grpc.StatusCode.NOT_FOUND):
        session.call("Acquire", namespace="nobody's", shares=[{"name": "x"}])
    with refused(grpc.StatusCode.NOT_FOUND, "absent"):
        session.call("Withdraw", namespace="default", shares=[{"name": "absent"}])
    assert session.call("Release", leases=[1, 2**64 - 1]).released == 0


def test_a_taken_name_is_refused(session: Session) -> None:
    session.publish("x", b"1")
    with refused(grpc.StatusCode.ALREADY_EXISTS, "x"):
        session.publish("x", b"2")
    session.publish("x", b"3", replace=True)
    assert session.read("x") == b"3"


def test_forged_and_missing_arenas_get_the_same_answer(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    handle = session.call("Allocate", namespace="default", size=4096).handle
    missing = handle.arena ^ (1 << 40)
    thief = open_session(daemon)
    spec = {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [1], "size": 1}
    attempts = {
        "Mapped": {},
        "Export": {"arena_generation": handle.generation},
        "Publish": {"arena_generation": handle.generation, "size": 1, "namespace": "default", "specs": {"arrays": [spec]}},
    }
    for verb, fields in attempts.items():
        answers = []
        for arena in (handle.arena, missing):
            try:
                thief.call(verb, arena=arena, **fields)
            except grpc.RpcError as error:
                answers.append((error.code(), error.details().replace(str(arena), "N")))
        assert len(answers) == 2 and answers[0] == answers[1], (verb, answers)
        assert answers[0][0] in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED)


def test_allocations_of_no_bytes_or_too_many_are_refused(session: Session) -> None:
    with refused(grpc.StatusCode.INVALID_ARGUMENT):
        session.call("Allocate", namespace="default", size=0)
    with pytest.raises(grpc.RpcError) as error:
        session.call("Allocate", namespace="default", size=2**64 - 1)
    assert error.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    with refused(grpc.StatusCode.UNIMPLEMENTED):
        session.channel.unary_unary("/arraybridge.v1.Broker/Redeem")(b"")


def test_a_refusal_has_googles_error_details(session: Session, generated: tuple[Any, Any]) -> None:
    details = importlib.import_module("foreign_v1.error_details_pb2")
    session.publish("x", b"1")
    with refused(grpc.StatusCode.ALREADY_EXISTS) as seen:
        session.publish("x", b"2")
    status = details.Status.FromString(seen["trailers"]["grpc-status-details-bin"])
    assert (status.code, status.message) == (grpc.StatusCode.ALREADY_EXISTS.value[0], seen["text"])
    info = details.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "arraybridge"
    assert info.reason == "NAME_TAKEN"


# ---- hostile connections ----


def connect(daemon: Daemon) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(90)
    connection.connect(str(daemon.directory / "broker.sock"))
    return connection


def until_closed(connection: socket.socket) -> bytes:
    received = b""
    try:
        while chunk := connection.recv(65536):
            received += chunk
    except ConnectionResetError:
        pass
    return received


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), PREFACE + b"\xff" * 4096], ids=["http1", "noise", "frames"])
def test_garbage_ends_only_its_connection(daemon: Daemon, session: Session, noise: bytes) -> None:
    with connect(daemon) as connection:
        try:
            connection.sendall(noise)
        except (BrokenPipeError, ConnectionResetError):
            pass
        until_closed(connection)
    assert session.call("GetStats").sessions == 1
    assert daemon.log.stat().st_size < 16384


@pytest.mark.parametrize("said", [b"", PREFACE[:10], PREFACE + b"\x00\x00"], ids=["silent", "half a preface", "half a frame"])
def test_a_connection_without_a_call_is_closed(start: Callable[..., Daemon], said: bytes) -> None:
    with connect(start(hello_timeout="50ms")) as connection:
        connection.sendall(said)
        until_closed(connection)


def test_an_open_session_is_not_idle(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = start(hello_timeout="1s")
    session = open_session(daemon)
    with connect(daemon) as connection:
        until_closed(connection)  # for the lifetime of idle connections
    assert session.call("GetStats").sessions == 1


def test_connections_are_counted(start: Callable[..., Daemon], generated: tuple[Any, Any]) -> None:
    messages, service = generated
    daemon = start(sessions_per_uid="2")
    taken = [connect(daemon) for _ in range(4)]
    for connection in taken:
        assert connection.recv(1)  # gRPC's first frame shows that it was admitted
    with connect(daemon) as refused_one:
        assert until_closed(refused_one) == b""
    for connection in taken:
        connection.close()
    with daemon.channel() as channel:  # there is room again after the daemon has noticed the end
        stub = service.BrokerStub(channel)
        assert stub.GetServerInfo(messages.GetServerInfoRequest(), wait_for_ready=True, timeout=90).version


def test_a_compressed_call_is_refused(daemon: Daemon, generated: tuple[Any, Any]) -> None:
    """Decompressed, 60 KB could be 60 MB."""
    messages, service = generated
    with daemon.channel() as channel, refused(grpc.StatusCode.UNIMPLEMENTED, "gzip"):
        request = messages.GetServerInfoRequest()
        service.BrokerStub(channel).GetServerInfo(request, compression=grpc.Compression.Gzip)
