# SPDX-License-Identifier: Apache-2.0
"""A wall clock that jumps and a daemon that is paused: faults 28 and 29. No deadline comes early, late or never for it."""

from __future__ import annotations

import re
import signal
import struct
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import BUILD, SANITIZED, Daemon, Ledger, RawLifeline, Refused, daemon_in, eventually, stopped

HOUR_S = 3600
SHORT_MS, LONG_MS = 1500, 120_000
HELLO_S = 1


class WallClock:
    """The wall clock of all processes in whose environment it is."""

    def __init__(self, file: Path) -> None:
        library = BUILD / "tests/faults/libwall_clock.so"
        if SANITIZED or not library.exists():
            pytest.skip("a library for LD_PRELOAD needs a build without a sanitizer")
        if harness.hardened:
            pytest.skip("a restricted daemon does not see the file with the clock")
        self.file = file
        self.environment = {"LD_PRELOAD": str(library), "WALL_CLOCK": str(file)}
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """Sets the distance from the real clock; the file is written in place, because processes have mapped it."""
        with self.file.open("r+b" if self.file.exists() else "w+b") as file:
            file.write(struct.pack("=q", seconds * 10**9))


def logged_at(daemon: Daemon) -> float:
    """The time of the last line of the log, in seconds since 1970."""
    text = re.findall(r'"time":"([^"]+)"', daemon.log_text())[-1]
    return datetime.fromisoformat(text).timestamp()


def hello_of(messages: Any) -> bytes:
    request = messages.OpenSessionRequest(protocol_min=1, protocol_max=1, client="late")
    return bytes(request.SerializeToString())


@pytest.mark.parametrize("hours", [1, -1])
def test_a_jump_of_the_wall_clock_changes_no_deadline(tmp_path: Path, messages: Any, hours: int) -> None:
    """Fault 28: what waits for a short time ends after it, and not before; what may wait for long does."""
    clock = WallClock(tmp_path / "clock")
    flags = ["--limit", f"hello_timeout={SHORT_MS}ms", "--log-format", "json"]
    with daemon_in(tmp_path / "broker", *flags, environment=clock.environment) as daemon:
        daemon.machine.update(clock.environment)  # for the clients
        ledger = Ledger(daemon)
        writer, holder, short, long = (daemon.client() for _ in range(4))
        writer.ask(f"put goes 4096 1 lifetime {SHORT_MS}")
        writer.ask(f"put stays 4096 2 lifetime {LONG_MS}")
        holder.ask("get stays 2")
        long.tell(f"get later 3 wait {LONG_MS}")
        eventually("it waits", lambda: daemon.stats()["waiting"] == 1)
        silent = RawLifeline(daemon.directory, messages)
        for _ in range(10):  # on a stalled machine the short wait may be over before it is seen
            begun = time.monotonic()
            short.tell(f"get never 1 wait {SHORT_MS}")
            eventually("both wait", lambda: daemon.stats()["waiting"] == 2 or short.has_answered())
            if not short.has_answered():
                break
            with pytest.raises(Refused, match="DEADLINE_EXCEEDED"):
                short.answer()

        clock.jump(hours * HOUR_S)
        with pytest.raises(Refused, match="DEADLINE_EXCEEDED"):
            short.answer()
        assert time.monotonic() - begun >= SHORT_MS / 1000
        assert silent.ended()
        rude = RawLifeline(daemon.directory, messages)
        rude.send(99)  # the log has a line about this client
        assert rude.ended()
        assert abs(logged_at(daemon) - time.time() - hours * HOUR_S) < HOUR_S / 2, "the daemon's clock has not jumped"
        eventually("its lifetime is over", lambda: "goes" not in writer.ask("list").split())
        assert daemon.stats()["waiting"] == 1
        short.tell(f"get other 4 wait {LONG_MS}")
        eventually("a wait that began after the jump", lambda: daemon.stats()["waiting"] == 2)

        clock.jump(0)
        writer.ask("put later 4096 3")
        writer.ask("put other 4096 4")
        long.answer()
        short.answer()
        holder.ask("check")
        holder.ask("get stays 2")
        for client in (holder, short, long):
            client.leave()
        for name in ("stays", "later", "other"):
            writer.ask(f"withdraw {name}")
        writer.leave()
        silent.close()
        rude.close()
        ledger.settle()


def test_a_jump_of_the_wall_clock_at_the_grpc_door(tmp_path: Path, messages: Any) -> None:
    """Fault 28: gRPC counts deadlines by the wall clock of this library's processes; the broker's answer still comes in time."""
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
    import foreign_v1.broker_pb2_grpc as service

    clock = WallClock(tmp_path / "clock")
    with daemon_in(tmp_path / "broker", environment=clock.environment) as daemon:
        ledger = Ledger(daemon)
        writer = daemon.client()
        with grpc.insecure_channel(f"unix:{daemon.directory}/broker.sock", [("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = service.BrokerStub(channel)
            stream = stub.OpenSession(messages.OpenSessionRequest(protocol_min=1, protocol_max=1))
            session = [("arraybridge-session", next(stream).opened.token.hex())]
            for hours in (1, -1):
                clock.jump(hours * HOUR_S)
                request = messages.AcquireRequest(namespace="default", shares=[{"name": "later"}], timeout_ms=LONG_MS)
                answer = stub.Acquire.future(request, metadata=session, timeout=LONG_MS / 1000)
                eventually("it waits", lambda: daemon.stats()["waiting"] == 1)
                writer.ask("put later 4096 3")
                assert len(answer.result().shares) == 1
                writer.ask("withdraw later")
                request.timeout_ms = SHORT_MS
                with pytest.raises(grpc.RpcError) as error:
                    stub.Acquire(request, metadata=session, timeout=LONG_MS / 1000)
                assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
                assert "later" in error.value.details(), "the broker's answer, not the deadline of gRPC"
            stream.cancel()
        writer.leave()
        ledger.settle()


def test_a_paused_daemon_forgets_nothing(tmp_path: Path, messages: Any) -> None:
    """Fault 29: clients' deadlines fire and mapped arrays stay readable; after it resumes, no client is cut for the pause."""
    with daemon_in(tmp_path / "broker", "--limit", f"hello_timeout={HELLO_S}s") as daemon:
        ledger = Ledger(daemon)
        writer, reader, waiter = (daemon.client() for _ in range(3))
        hasty = daemon.client(timeout_ms=SHORT_MS)
        for client in (writer, reader, waiter, hasty):
            client.repeat("stats")
        writer.ask(f"put a 65536 1 lifetime {LONG_MS}")
        reader.ask("get a 1")
        waiter.tell(f"get later 2 wait {LONG_MS}")
        for _ in range(10):
            eventually("only these are connected", lambda: daemon.sockets() <= ledger.sockets + 4)
            begun = time.monotonic()
            late = [RawLifeline(daemon.directory, messages) for _ in range(100)]
            eventually("all are connected", lambda: daemon.sockets() >= ledger.sockets + 100 + 4 or time.monotonic() - begun >= HELLO_S)
            before = daemon.stats()
            with stopped(daemon):
                if time.monotonic() - begun >= HELLO_S:  # the machine has stalled, and the daemon may have cut some of them
                    for line in late:
                        line.close()
                    continue
                for line in late:
                    line.send(1, hello_of(messages))  # in time, but the daemon reads it later
                with pytest.raises(Refused, match="DEADLINE_EXCEEDED"):
                    hasty.ask("put b 65536 3")  # takes longer than hello_timeout
                reader.ask("check")
                reader.ask("drop")
                break
        for line in late:
            _, status, _, _, _ = line.receive()
            assert status == 0, "its hello came in time"
        hasty.repeat("stats")
        after = daemon.stats()
        assert (after["sessions"], after["waiting"]) == (before["sessions"] + 100, 1)
        assert after["sessions_cut_total"] == before["sessions_cut_total"]
        reader.ask("get a 1")
        writer.ask("put later 65536 2")
        waiter.answer()
        for line in late:
            line.close()
        for name in ("a", "later"):
            writer.ask(f"withdraw {name}")
        for client in (writer, reader, waiter, hasty):
            client.leave()
        ledger.settle()


def test_clients_that_are_stopped_beside_it_change_nothing(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 29: daemon and clients are stopped together, as by a suspended container, and resume in any order."""
    writer, reader = daemon.client(), daemon.client()
    for round_ in range(4):
        writer.ask(f"put frame 65536 {round_} replace")
        reader.ask("drop")
        reader.ask(f"get frame {round_}")
        with stopped(daemon):
            reader.signal(signal.SIGSTOP)
            writer.tell(f"put next 65536 {round_} replace")
            if round_ % 2:
                reader.signal(signal.SIGCONT)
        reader.signal(signal.SIGCONT)
        writer.answer()
        reader.ask("check")
        reader.ask(f"get next {round_}")
    for name in ("frame", "next"):
        writer.ask(f"withdraw {name}")
    writer.leave()
    reader.leave()
    ledger.settle()
