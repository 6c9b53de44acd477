# SPDX-License-Identifier: Apache-2.0
"""The public door from any language: code generated from the .proto files, gRPC, and a socket for the descriptors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from foreign_client import PATIENCE_S, Daemon, Session, eventually, refused
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

STREAMS = 128  # calls of one connection at a time

INVALID_ARGUMENT, NOT_FOUND = 3, 5
HEALTHY, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


# ---- the usual calls ----


def test_server_info_needs_no_session(daemon: Daemon, generated: tuple[Any, Any]) -> None:
    messages, service = generated
    with daemon.channel() as channel:
        info = service.BrokerStub(channel).GetServerInfo(messages.GetServerInfoRequest())
    assert len(info.broker_id) == 16
    assert info.protocol_min <= 1 <= info.protocol_max
    assert info.limits.frame_bytes_max == 65536
    assert info.devices[0].capacity_bytes > 0
    assert not info.draining


def test_bytes_written_in_one_session_are_read_in_another(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
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
    assert [(s.session, s.client, s.door, s.uid) for s in sessions] == [(session.opened.session, "foreign", "grpc", os.getuid())]
    assert session.call("Withdraw", namespace="default", shares=[{"name": "a"}, {"name": "b"}]).withdrawn == 2
    assert [info.share.name for info in session.call("List").shares] == ["c"]


def test_export_returns_another_ticket(session: Session) -> None:
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


@pytest.fixture(params=["v1", "v1alpha"])
def reflect(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Reflection, in each of its versions: they have the same messages."""
    with daemon.channel() as channel:
        yield channel.stream_stream(
            f"/grpc.reflection.{request.param}.ServerReflection/ServerReflectionInfo",
            request_serializer=lambda each: each if isinstance(each, bytes) else each.SerializeToString(),
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )


def test_reflection_answers_each_question(reflect: Callable[..., Any]) -> None:
    question = reflection_pb2.ServerReflectionRequest
    symbol = {"containing_type": "google.protobuf.FieldOptions", "extension_number": 1}
    asked = [
        question(host="h", list_services=""),
        question(file_by_filename="arraybridge/v1/array.proto"),
        question(file_containing_symbol="arraybridge.v1.Broker.Allocate"),
        question(all_extension_numbers_of_type="google.protobuf.FieldOptions"),
        question(file_containing_extension=symbol),
        question(file_containing_symbol="nothing"),
        question(file_by_filename="../etc/passwd"),
        question(all_extension_numbers_of_type="nothing"),
        question(host="h"),
    ]
    told = list(reflect(iter(asked)))
    assert [answer.original_request for answer in told] == asked
    services, array, broker, numbers = told[:4]
    assert services.valid_host == "h"
    names = [each.name for each in services.list_services_response.service]
    assert names[0] == "arraybridge.v1.Broker" and "grpc.health.v1.Health" in names
    assert {"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"} < set(names)
    files = [
        [FileDescriptorProto.FromString(file).name for file in answer.file_descriptor_response.file_descriptor_proto]
        for answer in (array, broker)
    ]
    imported = ["arraybridge/v1/array.proto", "arraybridge/v1/born.proto", "arraybridge/v1/tiers.proto"]
    assert files == [imported[:1], ["arraybridge/v1/broker.proto", *imported]]
    assert numbers.all_extension_numbers_response.base_type_name == "google.protobuf.FieldOptions"
    assert [answer.error_response.error_code for answer in told[4:]] == [NOT_FOUND] * 4 + [INVALID_ARGUMENT]
    for nonsense in (b"\xff", b"\x1a\x05ab", b"\x03", b"\x0b" * 50_000):
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "this is no ServerReflectionRequest"):
            next(reflect(iter([nonsense])))


def test_reflection_streams_that_never_end_affect_nobody(reflect: Callable[..., Any], session: Session) -> None:
    stop = threading.Event()

    def endless() -> Iterator[Any]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        stop.wait()

    calls = [reflect(endless()) for _ in range(100)]
    for call in calls:
        assert next(call).list_services_response.service
    assert session.call("GetServerInfo").version
    stop.set()
    for call in calls:
        call.cancel()


def test_streams_of_one_connection_are_bounded(
    start: Callable[..., Daemon], generated: tuple[Any, Any], open_session: Callable[..., Session]
) -> None:
    daemon = start()
    other = open_session(daemon)
    messages, service = generated
    hello = messages.OpenSessionRequest(protocol_min=1, protocol_max=1)
    with daemon.channel() as channel:
        stub = service.BrokerStub(channel)
        streams = [stub.OpenSession(hello) for _ in range(STREAMS)]
        for stream in streams:
            assert next(stream).opened.session
        third = stub.GetServerInfo.future(messages.GetServerInfoRequest())
        for _ in range(50):
            assert other.call("GetServerInfo").version
        assert not third.done(), "it was served in addition to the others"
        streams[0].cancel()
        assert third.result(PATIENCE_S).version
        for stream in streams[1:]:
            stream.cancel()


# ---- a session ends with its stream ----


def test_the_end_of_the_stream_ends_the_session(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
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
    writer.channel.close()  # together with its connection
    eventually("both sessions ended", lambda: session.call("GetStats").sessions == 1)
    after = eventually("their arenas went", lambda: (s := session.call("GetStats")).dying_arenas == 0 and s)
    assert (after.leases, after.tickets, after.arenas) == (0, 0, before.arenas)
    assert after.charged_bytes == before.charged_bytes
    assert after.sessions_total == 3


def test_calls_of_an_ended_session_are_refused(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    ended = open_session(daemon)
    ended.stream.cancel()
    eventually("the session ended", lambda: session.call("GetStats").sessions == 1)
    with refused(grpc.StatusCode.UNAUTHENTICATED, "no open session"):
        ended.call("GetStats")


def test_a_waiting_call_ends_with_its_session(daemon: Daemon, session: Session, open_session: Callable[..., Session]) -> None:
    waiter = open_session(daemon)
    waits = waiter.begin("Acquire", namespace="default", shares=[{"name": "never"}], timeout_ms=60_000)
    eventually("the call waits", lambda: session.call("GetStats").waiting == 1)
    waiter.stream.cancel()
    with refused(grpc.StatusCode.CANCELLED, "session has ended"):
        waits.result()
    assert session.call("GetStats").waiting == 0


def test_a_cancelled_call_stops_waiting(session: Session) -> None:
    waits = session.begin("Acquire", namespace="default", shares=[{"name": "never"}], timeout_ms=60_000)
    eventually("the call waits", lambda: session.call("GetStats").waiting == 1)
    waits.cancel()
    eventually("nobody waits", lambda: session.call("GetStats").waiting == 0)


def test_a_wait_is_answered_before_the_calls_own_deadline(session: Session) -> None:
    waits = session.begin("Acquire", namespace="default", shares=[{"name": "never"}], timeout_ms=60_000, timeout=5)
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "'never'"):  # the broker's error, not the client's own timeout
        waits.result()
    assert session.call("GetStats").waiting == 0


def test_a_drain_is_reported_on_the_streams(daemon: Daemon, session: Session, generated: tuple[Any, Any]) -> None:
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
