# SPDX-License-Identifier: Apache-2.0
"""A caller whose request timed out can learn the outcome of the request, and nothing of it leaks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import harness
import pytest
from harness import CALLS_BEFORE_QUEUE, Client, Daemon, Ledger, Refused, daemon_in, eventually, stopped

TIMEOUT_MS = 300  # for clients whose broker is stopped; they repeat their other calls, which a stalled machine delays


def ready(daemon: Daemon, way: str = "queue") -> Client:
    """A client that has memory and has made enough calls to get a queue, unless it must use its socket."""
    client = daemon.client(timeout_ms=TIMEOUT_MS)
    client.repeat("put first 4096 1")
    client.repeat("place 4096")  # until `drop` its arena is not idle, so a put needs no other one
    for _ in range(0 if way == "socket" else CALLS_BEFORE_QUEUE):
        client.repeat("stats")
    client.repeat("withdraw first")
    return client


def timed_out(client: Client, line: str) -> Refused:
    with pytest.raises(Refused) as error:
        client.ask(line)
    assert error.value.code == "DEADLINE_EXCEEDED", error.value
    return error.value


@pytest.fixture(params=["socket", "queue", "polled queue"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sets how requests reach the daemon, before it starts. A queue that is not polled needs a doorbell for each request."""
    monkeypatch.setattr(harness, "spin_us", 50 if request.param == "polled queue" else 0)
    return str(request.param)


def test_a_put_that_timed_out_is_not_executed_later(way: str, daemon: Daemon, ledger: Ledger) -> None:
    client = ready(daemon, way)
    with stopped(daemon):
        error = timed_out(client, "put frame 4096 7")
        assert "timeout_s=" in error.message and "outcome" in error.message
        timed_out(client, "outcome 50")  # the outcome is not known yet
    assert client.ask("outcome 60000").startswith("not done DEADLINE_EXCEEDED NOT_SERVED")
    assert client.ask("outcome 0").startswith("not done"), "the outcome can be queried repeatedly"
    assert client.repeat("list frame") == ""
    client.repeat("put frame 4096 8")  # the retry: no ALREADY_EXISTS
    client.repeat("get frame 8")
    client.ask("drop")
    client.repeat("withdraw frame")
    eventually("its range is free again", lambda: client.repeat("flush") == "" and client.numbers("mine")["arenas_written"] == 0)
    client.leave()
    ledger.settle()


def test_a_withdrawal_that_timed_out_is_not_executed_later(way: str, daemon: Daemon, ledger: Ledger) -> None:
    client = ready(daemon, way)
    client.repeat("put frame 4096 7")
    with stopped(daemon):
        timed_out(client, "withdraw frame")
    assert client.ask("outcome 60000").startswith("not done DEADLINE_EXCEEDED NOT_SERVED")
    client.repeat("get frame 7")
    client.ask("drop")
    client.repeat("withdraw frame")
    client.leave()
    ledger.settle()


def test_memory_of_a_timed_out_request_is_returned(way: str, daemon: Daemon, ledger: Ledger) -> None:
    """A put without memory has not been executed, whatever happens to its Allocate later."""
    client = ready(daemon, way)
    with stopped(daemon):
        timed_out(client, "put large 8388608 7")
        assert client.ask("outcome 0").startswith("not done"), "the Publish was not sent, so the outcome is known at once"
    client.repeat("put large 8388608 8")
    client.repeat("get large 8")
    client.ask("drop")
    client.repeat("withdraw large")
    client.leave()
    ledger.settle()


def test_after_the_daemons_death_the_outcome_is_unknown(way: str, daemon: Daemon) -> None:
    client = ready(daemon, way)
    with stopped(daemon):
        timed_out(client, "put frame 4096 7")
        daemon.process.kill()
    daemon.process.wait()
    with pytest.raises(Refused) as error:
        client.ask("outcome 60000")
    assert (error.value.code, error.value.reason) == ("UNAVAILABLE", "OUTCOME_UNKNOWN")
    daemon.start()
    with pytest.raises(Refused, match="OUTCOME_UNKNOWN"):
        client.ask("outcome 60000")
    with contextlib.suppress(Refused):
        client.ask("stats")
    client.insist("put frame 4096 8")


def test_queued_requests_are_confirmed_by_the_next_call(daemon: Daemon, ledger: Ledger) -> None:
    client = ready(daemon)
    client.repeat("put frame/0 4096 1 late")
    client.repeat("put frame/1 4096 1 late")
    client.repeat("flush")
    client.repeat("put frame/2 4096 1 late")
    with stopped(daemon):
        client.ask("put frame/3 4096 1 late")
        timed_out(client, "flush")
    client.repeat("flush")
    assert sorted(client.repeat("list frame").split()) == [f"frame/{n}" for n in range(4)]
    for number in range(4):
        client.repeat(f"withdraw frame/{number}")
    client.leave()
    ledger.settle()


@pytest.fixture
def slow_daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that needs a tenth of a second to populate 2 MiB."""
    with daemon_in(tmp_path / "slow", environment={"ARRAYBRIDGE_FAILPOINT": "populate_slowly:error"}) as running:
        yield running


def test_populating_does_not_count_against_the_deadline(slow_daemon: Daemon) -> None:
    """64 MiB take at least 3.2 s; the client's timeout is one second."""
    client = slow_daemon.client(timeout_ms=1000)
    client.repeat(f"put large {64 << 20} 7")
    client.repeat("get large 7")


def test_populating_without_progress_fails_with_advice(slow_daemon: Daemon) -> None:
    client = slow_daemon.client(timeout_ms=1000)
    client.repeat("stats")
    error = None
    for _ in range(10):  # until the daemon is stopped before it has populated everything
        client.tell(f"put large {64 << 20} 7")
        eventually("it is being populated", lambda: slow_daemon.memory_files() > 0)
        with stopped(slow_daemon):
            try:
                client.answer()
            except Refused as refused:
                error = refused
                break
        client.repeat("withdraw large")
        eventually("its memory is given back", lambda: client.repeat("flush") == "" and slow_daemon.memory_files() == 0)
    assert error is not None and error.code == "DEADLINE_EXCEEDED" and "timeout_s=" in error.message
    assert client.ask("outcome 0").startswith("not done")
    # The client reads the late answer at its next request.
    eventually("its memory is given back", lambda: client.repeat("stats") and slow_daemon.stats()["charged_bytes"] == 0)
