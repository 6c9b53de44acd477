# SPDX-License-Identifier: Apache-2.0
"""Clients that send garbage, send nothing, or read nothing: faults 12-14. A hostile client affects only itself."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path
from typing import Any

import pytest
from harness import DOORBELL, GET_STATS, PATIENCE_S, Daemon, Ledger, RawLifeline, daemon_in, eventually, raw_lifeline


def test_garbage_at_the_lifeline(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 12: garbage ends only the connection that sent it."""
    chance = random.Random(3)
    other = daemon.client()
    other.ask("put a 65536 1")
    for size in [1, 8, 15, 16, 17, 100, 5000, 65536]:
        for opened in (False, True):
            line = RawLifeline(daemon.directory, messages)
            if opened:
                line.hello()
            line.socket.send(chance.randbytes(size))
            line.socket.shutdown(socket.SHUT_WR)
            assert line.ended()
            line.close()
        other.ask("get a 1")
        other.ask("drop")
    for verb in [0, 20, 77, 65535]:
        line = raw_lifeline(daemon, messages)
        line.send(verb, b"")
        _, status, _, _, _ = line.receive()
        assert status == 12  # UNIMPLEMENTED: tells a newer client that this broker is older
        line.close()
    verbs = [verb for verb in range(2, 20) if verb != DOORBELL]  # it has no message
    for verb in verbs:
        line = raw_lifeline(daemon, messages)
        line.send(verb, b"\xff" * 64)
        assert line.ended()
        line.close()
    nested = b""
    for _ in range(2000):
        nested = b"\x0a" + varint(len(nested)) + nested
    for verb in [*verbs, DOORBELL]:
        for payload in (nested, b"\x0a\x02\xc3\x28", b"\x12\x02\xff\xfe", b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 500):
            line = raw_lifeline(daemon, messages)
            line.send(verb, payload)
            line.socket.shutdown(socket.SHUT_WR)
            assert line.ended()
            line.close()
    other.ask("get a 1")
    other.ask("check")
    other.ask("drop")
    other.ask("withdraw a")
    other.leave()
    ledger.settle()


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def test_garbage_at_the_grpc_door(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 12 at the other door: bytes that are not HTTP/2."""
    chance = random.Random(4)
    for size in [1, 24, 500, 70000]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(daemon.directory / "broker.sock"))
            connection.sendall(chance.randbytes(size))
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(4096):
                    pass
    daemon.warden.ask("stats")
    ledger.settle()


def test_many_sessions_at_the_grpc_door_leave_nothing(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Sixty clients of the gRPC door open sessions and cancel them; no session, descriptor or thread of a call stays."""
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
    import foreign_v1.broker_pb2_grpc as service

    request = messages.OpenSessionRequest(protocol_min=1, protocol_max=1)
    with contextlib.ExitStack() as ends:
        for _ in range(60):
            channel = grpc.insecure_channel(f"unix:{daemon.directory}/broker.sock", [("grpc.use_local_subchannel_pool", 1)])
            stream = service.BrokerStub(ends.enter_context(channel)).OpenSession(request)
            assert next(stream).opened.token
            ends.callback(stream.cancel)
        assert daemon.stats()["sessions"] == 60 + 1
    ledger.settle()


def test_silent_connections_are_ended(tmp_path: Path, messages: Any) -> None:
    """Fault 13: a hello has a deadline; other clients are not affected."""
    with daemon_in(tmp_path / "broker", "--limit", "hello_timeout=1s") as daemon:
        ledger = Ledger(daemon)
        silent = [RawLifeline(daemon.directory, messages) for _ in range(150)]
        client = daemon.client()
        client.ask("put a 4096 1")
        client.ask("get a 1")
        for line in silent:
            assert line.ended()
            line.close()
        client.ask("drop")
        client.ask("withdraw a")
        client.leave()
        ledger.settle()


def test_a_slow_reader_is_cut(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 14: a client that sends requests and never reads is disconnected and counted; others keep their rate."""
    slow, client = raw_lifeline(daemon, messages), daemon.client()
    client.ask("put a 4096 1")
    slow.socket.settimeout(0.05)
    try:
        while True:
            slow.send(GET_STATS)
    except (TimeoutError, OSError):
        pass
    for _ in range(100):
        client.ask("get a 1")
        client.ask("drop")
    eventually("the slow reader was cut", lambda: daemon.stats()["sessions_cut_total"] >= 1)
    slow.close()
    client.ask("withdraw a")
    client.leave()
    ledger.settle()
