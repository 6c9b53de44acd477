"""The public door as any language sees it: code generated from the .proto, gRPC, and a socket for the descriptors."""

from __future__ import annotations

import importlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from foreign_client import Daemon, Lifeline, Refused, Session, eventually, generate, refused
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

NOT_FOUND = 5
HEALTHY, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return generate(tmp_path_factory.mktemp("generated"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    daemons: list[Daemon] = []

    def started(*flags: str, **limits: str) -> Daemon:
        daemons.append(Daemon(tmp_path / f"daemon{len(daemons)}", *flags, **limits))
        return daemons[-1]

    yield started
    assert [daemon.terminate() for daemon in daemons] == [0] * len(daemons)


@pytest.fixture
def daemon(start: Callable[..., Daemon]) -> Daemon:
    return start()


@pytest.fixture
def open_session(generated: tuple[Any, Any]) -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def opened(daemon: Daemon, **hello: Any) -> Session:
        sessions.append(Session(daemon, *generated, **hello))
        return sessions[-1]

    yield opened
    for session in sessions:
        session.close()


@pytest.fixture
def session(daemon: Daemon, open_session: Callable[..., Session]) -> Session:
    return open_session(daemon)


# ---- the straight line ----


def test_server_info_needs_no_session(daemon: Daemon, generated: tuple[Any, Any]) -> None:
    messages, service = generated
    with daemon.channel() as channel:
        info = service.BrokerStub(channel).GetServerInfo(messages.GetServerInfoRequest())
    assert len(info.broker_id) == 16
    assert info.protocol_min <= 1 <= info.protocol_max
    assert info.limits.frame_bytes_max == 65536
    assert info.devices[0].capacity_bytes > 0
    assert not info.draining


def test_bytes_written_in_one_session_are_read_in_another(
    daemon: Daemon, session: Session, open_session: Callable[..., Session]
) -> None:
    content = os.urandom(1 << 20)
    published, mapping = session.publish("weights", content, metadata=b"epoch 7")
    assert published.name == "weights"
    assert open_session(daemon).read("weights") == content
    mapping.close()


def test_an_acquire_waits_for_its_name(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    reader = open_session(daemon)
    waits = reader.begin("Acquire", namespace="default", shares=[{"name": "soon"}], timeout_ms=60_000)
    eventually("the call waits", lambda: session.call("GetStats").waiting == 1)
    session.publish("soon", b"here")
    assert waits.result().shares[0].share.name == "soon"


def test_list_and_withdraw(session: Session) -> None:
    for name in ("a", "b", "c"):
        session.publish(name, name.encode())
    listed, token = [], ""
    while True:
        page = session.call("List", page_size=2, page_token=token)
        assert len(page.shares) <= 2
        listed += [(info.share.name, info.share.specs.arrays[0].shape[:], info.maker) for info in page.shares]
        token = page.next_page_token
        if not token:
            break
    assert sorted(listed) == [(name, [1], session.opened.session) for name in ("a", "b", "c")]
    sessions = session.call("List", kind="SESSIONS").sessions
    assert [(s.session, s.client, s.door, s.uid) for s in sessions] == [
        (session.opened.session, "foreign", "grpc", os.getuid())
    ]
    assert session.call("Withdraw", namespace="default", shares=[{"name": "a"}, {"name": "b"}]).withdrawn == 2
    assert [info.share.name for info in session.call("List").shares] == ["c"]


def test_export_brings_another_ticket(session: Session) -> None:
    _, mapping = session.publish("x", b"twice")
    acquired = session.call("Acquire", namespace="default", shares=[{"name": "x"}])
    handle = acquired.shares[0].share.handle
    exported = session.call("Export", arena=handle.arena, arena_generation=handle.generation)
    redeemed, descriptor = session.lifeline.redeem(exported.ticket)
    assert not redeemed.writable
    assert os.pread(descriptor, 5, handle.offset) == b"twice"
    os.close(descriptor)
    mapping.close()


def test_a_redeemed_reader_cannot_write(session: Session) -> None:
    session.publish("x", b"final")
    acquired = session.call("Acquire", namespace="default", shares=[{"name": "x"}])
    _, descriptor = session.lifeline.redeem(acquired.tickets[0])
    with pytest.raises(OSError):
        os.pwrite(descriptor, b"!", 0)
    os.close(descriptor)


def test_health_answers_for_the_server_and_the_service(daemon: Daemon) -> None:
    with daemon.channel() as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "arraybridge.v1.Broker"):
            assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == HEALTHY
        with refused(grpc.StatusCode.NOT_FOUND):
            health.Check(health_pb2.HealthCheckRequest(service="arraybridge.v1.Admin"))


def test_reflection_describes_every_verb(daemon: Daemon, generated: tuple[Any, Any]) -> None:
    with daemon.channel() as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "arraybridge.v1.Broker" in database.get_services()
        reflected = DescriptorPool(database).FindServiceByName("arraybridge.v1.Broker")
        ours = generated[0].DESCRIPTOR.services_by_name["Broker"]
        assert [method.name for method in reflected.methods] == [method.name for method in ours.methods]


# ---- the session is the stream ----


def test_the_streams_end_is_the_sessions_end(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    session.publish("x", b"1234")
    before = session.call("GetStats")
    reader = open_session(daemon)
    acquired = reader.call("Acquire", namespace="default", shares=[{"name": "x"}])
    writer = open_session(daemon)
    writer.call("Allocate", namespace="default", size=4096)
    during = session.call("GetStats")
    assert (during.sessions, during.leases, during.tickets) == (3, 1, 2)
    assert acquired.tickets
    reader.stream.cancel()  # in order
    writer.channel.close()  # with its connection
    eventually("both sessions ended", lambda: session.call("GetStats").sessions == 1)
    after = eventually("their arenas went", lambda: (s := session.call("GetStats")).dying_arenas == 0 and s)
    assert (after.leases, after.tickets, after.arenas) == (0, 0, before.arenas)
    assert after.charged_bytes == before.charged_bytes
    assert after.sessions_total == 3


def test_calls_of_an_ended_session_are_refused(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    ended = open_session(daemon)
    ended.stream.cancel()
    eventually("the session ended", lambda: session.call("GetStats").sessions == 1)
    with refused(grpc.StatusCode.UNAUTHENTICATED, "no living session"):
        ended.call("GetStats")


def test_a_waiting_call_ends_with_its_session(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    waiter = open_session(daemon)
    waits = waiter.begin("Acquire", namespace="default", shares=[{"name": "never"}], timeout_ms=60_000)
    eventually("the call waits", lambda: session.call("GetStats").waiting == 1)
    waiter.stream.cancel()
    with refused(grpc.StatusCode.CANCELLED, "session has ended"):
        waits.result()
    assert session.call("GetStats").waiting == 0


def test_a_cancelled_call_waits_no_more(session: Session) -> None:
    waits = session.begin("Acquire", namespace="default", shares=[{"name": "never"}], timeout_ms=60_000)
    eventually("the call waits", lambda: session.call("GetStats").waiting == 1)
    waits.cancel()
    eventually("nobody waits", lambda: session.call("GetStats").waiting == 0)


def test_the_calls_own_deadline_ends_its_wait(session: Session) -> None:
    waits = session.begin("Acquire", namespace="default", shares=[{"name": "never"}], timeout_ms=60_000, timeout=0.3)
    with pytest.raises(grpc.RpcError) as error:
        waits.result()
    # Whoever is faster: the broker's answer, or the client's clock.
    assert error.value.code() in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.DEADLINE_EXCEEDED)
    eventually("nobody waits", lambda: session.call("GetStats").waiting == 0)


def test_draining_tells_the_streams(daemon: Daemon, session: Session, generated: tuple[Any, Any]) -> None:
    with daemon.channel() as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="arraybridge.v1.Broker"))
        assert next(watch).status == HEALTHY
        waits = session.begin("Acquire", namespace="default", shares=[{"name": "never"}], timeout_ms=60_000)
        eventually("the call waits", lambda: session.call("GetStats").waiting == 1)
        assert daemon.process.poll() is None
        daemon.process.terminate()
        assert next(watch).status == NOT_SERVING
        assert next(session.stream).draining
        assert list(session.stream) == []  # ended without an error
        assert session.stream.code() == grpc.StatusCode.OK
        with refused(grpc.StatusCode.UNAVAILABLE, "drain"):
            waits.result()
        watch.cancel()
    assert daemon.process.wait() == 0


# ---- refusals ----


@pytest.mark.parametrize("verb", ["Allocate", "Mapped", "Publish", "Acquire", "Export", "Release", "Withdraw", "List", "GetStats"])
def test_every_other_verb_needs_a_session(daemon: Daemon, generated: tuple[Any, Any], verb: str) -> None:
    messages, service = generated
    with daemon.channel() as channel:
        call = getattr(service.BrokerStub(channel), verb)
        request = getattr(messages, f"{verb}Request")()
        with refused(grpc.StatusCode.UNAUTHENTICATED, "names no session"):
            call(request)
        for token in ("", "00" * 16, "0" * 31, "zz" * 16, "00" * 17):
            with refused(grpc.StatusCode.UNAUTHENTICATED, "no living session"):
                call(request, metadata=[("arraybridge-session", token)])


def test_a_ticket_is_redeemed_once(session: Session) -> None:
    ticket = session.call("Allocate", namespace="default", size=1).ticket
    _, descriptor = session.lifeline.redeem(ticket)
    os.close(descriptor)
    with pytest.raises(Refused) as again:
        session.lifeline.redeem(ticket)
    assert again.value.code == NOT_FOUND


def test_used_foreign_and_made_up_tickets_are_answered_alike(
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
    _, descriptor = session.lifeline.redeem(ticket)  # somebody else's attempt has not spent it
    os.close(descriptor)


def test_a_late_ticket_is_none(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    session = open_session(start(ticket_lifetime="1ms"))
    assert session.lifeline
    ticket = session.call("Allocate", namespace="default", size=1).ticket
    assert ticket.lifetime_ms == 1
    issued = time.monotonic()
    while time.monotonic() < issued + 0.002:
        pass  # its lifetime, on the clock of both processes
    with pytest.raises(Refused) as late:
        session.lifeline.redeem(ticket)
    assert late.value.code == NOT_FOUND


def test_tickets_are_counted(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    session = open_session(start(tickets_per_session_max="2"))
    for _ in range(2):
        session.call("Allocate", namespace="default", size=1)
    arenas = session.call("GetStats").arenas
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "2"):
        session.call("Allocate", namespace="default", size=1)
    eventually("the arena without a ticket goes", lambda: session.call("GetStats").arenas == arenas)


def test_a_lifeline_joins_with_a_token_alone(daemon: Daemon, session: Session) -> None:
    for token in (bytes(16), b"x", session.opened.token + b"x"):
        with pytest.raises((Refused, EOFError)):
            Lifeline(daemon, session.messages, token)


def test_a_stream_does_not_join(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "lifeline"):
        open_session(daemon, join=session.opened.token)


def test_a_protocol_that_does_not_meet_ours(daemon: Daemon, open_session: Callable[..., Session]) -> None:
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "7 to 9"):
        open_session(daemon, protocol_min=7, protocol_max=9)


def test_sessions_are_counted(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = start(sessions_per_uid="2")
    for _ in range(2):
        open_session(daemon)
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "2"):
        open_session(daemon)


def test_an_oversize_message_is_refused_and_costs_nobody_else(session: Session) -> None:
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "65536"):
        session.call("Publish", metadata=bytes(70_000))
    assert session.call("GetStats").sessions == 1


def test_what_is_not_there(session: Session) -> None:
    with refused(grpc.StatusCode.NOT_FOUND, "absent"):
        session.call("Acquire", namespace="default", shares=[{"name": "absent"}])
    with refused(grpc.StatusCode.NOT_FOUND):
        session.call("Acquire", namespace="nobody's", shares=[{"name": "x"}])
    with refused(grpc.StatusCode.NOT_FOUND, "absent"):
        session.call("Withdraw", namespace="default", shares=[{"name": "absent"}])
    assert session.call("Release", leases=[1, 2**64 - 1]).released == 0


def test_a_taken_name(session: Session) -> None:
    session.publish("x", b"1")
    with refused(grpc.StatusCode.ALREADY_EXISTS, "x"):
        session.publish("x", b"2")
    session.publish("x", b"3", replace=True)
    assert session.read("x") == b"3"


def test_forged_arenas_are_answered_like_missing_ones(
    daemon: Daemon, session: Session, open_session: Callable[..., Session]
) -> None:
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


def test_nobody_allocates_nothing_or_everything(session: Session) -> None:
    with refused(grpc.StatusCode.INVALID_ARGUMENT):
        session.call("Allocate", namespace="default", size=0)
    with pytest.raises(grpc.RpcError) as error:
        session.call("Allocate", namespace="default", size=2**64 - 1)
    assert error.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    with refused(grpc.StatusCode.UNIMPLEMENTED):
        session.channel.unary_unary("/arraybridge.v1.Broker/Redeem")(b"")


def test_a_refusal_says_why_in_googles_words(session: Session, generated: tuple[Any, Any]) -> None:
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
def test_garbage_ends_its_connection_and_nothing_else(daemon: Daemon, session: Session, noise: bytes) -> None:
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
    daemon = start(hello_timeout="50ms")
    session = open_session(daemon)
    with connect(daemon) as connection:
        until_closed(connection)  # as long as idle ones live
    assert session.call("GetStats").sessions == 1


def test_connections_are_counted(start: Callable[..., Daemon], generated: tuple[Any, Any]) -> None:
    messages, service = generated
    daemon = start(connections_per_uid="4")
    taken = [connect(daemon) for _ in range(4)]
    for connection in taken:
        assert connection.recv(1)  # gRPC's first frame: admitted
    with connect(daemon) as refused_one:
        assert until_closed(refused_one) == b""
    for connection in taken:
        connection.close()
    with daemon.channel() as channel:  # there is room again, as soon as the daemon has seen it
        stub = service.BrokerStub(channel)
        assert stub.GetServerInfo(messages.GetServerInfoRequest(), wait_for_ready=True, timeout=90).version
