# SPDX-License-Identifier: Apache-2.0
"""A killed daemon's sessions over gRPC: the next daemon keeps them until their clients come back with the token."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from foreign_client import Daemon, Session, eventually, refused


def bytes_of(session: Session, ticket: Any, handle: Any) -> bytes:
    redeemed, descriptor = session.lifeline.redeem(ticket)
    assert redeemed.handle.arena == handle.arena
    try:
        return os.pread(descriptor, handle.size, handle.offset)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR2], ids=["kill", "upgrade"])
def test_a_session_goes_on_with_its_token(start: Callable[..., Daemon], open_session: Callable[..., Session], number: int) -> None:
    daemon = start("--keeper")
    writer, reader = open_session(daemon), open_session(daemon)
    writer.publish("a", b"kept")
    acquired = reader.call("Acquire", namespace="default", shares=[{"name": "a"}])
    if number == signal.SIGKILL:
        daemon.kill_below_keeper()
    else:
        daemon.process.send_signal(number)
    with refused(grpc.StatusCode.UNAVAILABLE):
        list(reader.stream)
    again = eventually("the next daemon serves", lambda: continued(open_session, daemon, reader))
    assert (again.opened.session, again.opened.token) == (reader.opened.session, reader.opened.token)
    assert bytes_of(again, acquired.tickets[0], acquired.shares[0].share.handle) == b"kept"
    with refused(grpc.StatusCode.NOT_FOUND, "orphan_grace") as seen:
        open_session(daemon, join=reader.opened.token)
    assert seen["code"] == grpc.StatusCode.NOT_FOUND, "it has a client again"
    back = continued(open_session, daemon, writer)
    assert back is not None
    assert (back.call("GetStats").sessions, back.call("GetStats").leases) == (2, 1)
    assert again.call("Release", leases=[acquired.shares[0].lease]).released == 1
    again.close()
    eventually("its session has ended", lambda: back.call("GetStats").sessions == 1)
    assert open_session(daemon).read("a") == b"kept"


def continued(open_session: Callable[..., Session], daemon: Daemon, session: Session) -> Session | None:
    """None: no daemon serves yet."""
    try:
        return open_session(daemon, join=session.opened.token)
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call) and error.code() == grpc.StatusCode.UNAVAILABLE, error
        return None


def test_its_calls_go_on_before_its_stream_does(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = start("--keeper")
    session = open_session(daemon)
    session.publish("a", b"kept")
    daemon.kill_below_keeper()
    with refused(grpc.StatusCode.UNAVAILABLE):
        list(session.stream)
    request = session.messages.GetStatsRequest()
    stats = session.stub.GetStats(request, metadata=session.metadata, wait_for_ready=True, timeout=60)
    assert (stats.sessions, stats.shares) == (1, 1)


def test_a_session_whose_client_stays_away_ends(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    daemon = start("--keeper", "--orphan-grace", "1s")
    away, writer = open_session(daemon), open_session(daemon)
    writer.publish("a", b"kept")
    away.call("Acquire", namespace="default", shares=[{"name": "a"}])
    daemon.kill_below_keeper()
    with refused(grpc.StatusCode.UNAVAILABLE):
        list(writer.stream)
    back = eventually("the next daemon serves", lambda: continued(open_session, daemon, writer))
    eventually("only the other one is left", lambda: back.call("GetStats").sessions == 1)
    assert back.call("GetStats").leases == 0
    with refused(grpc.StatusCode.NOT_FOUND, "waits for its client"):
        open_session(daemon, join=away.opened.token)


def test_nobody_continues_a_session_that_has_its_client(session: Session, daemon: Daemon, open_session: Callable[..., Session]) -> None:
    for token in (session.opened.token, bytes(16), b"short"):
        with refused(grpc.StatusCode.NOT_FOUND):
            open_session(daemon, join=token)


def test_a_session_that_waits_makes_room_for_a_new_one(start: Callable[..., Daemon], open_session: Callable[..., Session]) -> None:
    """Clients that only open new sessions are not kept out for the grace."""
    daemon = start("--keeper", sessions_per_uid="3")
    sessions = [open_session(daemon) for _ in range(3)]
    daemon.kill_below_keeper()
    with refused(grpc.StatusCode.UNAVAILABLE):
        list(sessions[0].stream)
    eventually("the next daemon serves", lambda: continued(open_session, daemon, sessions[2]))
    new = [open_session(daemon), open_session(daemon)]
    assert new[0].call("GetStats").sessions == 3
    with refused(grpc.StatusCode.NOT_FOUND):
        open_session(daemon, join=sessions[0].opened.token)
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
        open_session(daemon)
