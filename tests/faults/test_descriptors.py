# SPDX-License-Identifier: Apache-2.0
"""Descriptors that are not read, too many descriptors, and descriptors of hostile clients: faults 14-17."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from harness import (
    ACQUIRE,
    DAEMON,
    EXPORT,
    GET_STATS,
    HEADER,
    OPEN_SESSION,
    PATIENCE_S,
    Daemon,
    Ledger,
    RawLifeline,
    Refused,
    daemon_in,
    eventually,
    lingering_socket,
    raw_lifeline,
)


def test_unread_descriptors_are_bounded(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 14: the number of descriptors in flight is limited for each session."""
    writer, hoarder = daemon.client(), raw_lifeline(daemon, messages)
    writer.ask("put a 65536 1")
    request = messages.AcquireRequest(namespace="default", shares=[messages.ShareRef(name="a")])
    answer, descriptors = hoarder.call(ACQUIRE, request, messages.AcquireResponse)
    assert len(descriptors) == 1
    os.close(descriptors[0])
    handle = answer.shares[0].share.handle
    export = messages.ExportRequest(arena=handle.arena, arena_generation=handle.generation).SerializeToString()
    hoarder.socket.settimeout(0.05)
    try:
        for _ in range(2000):
            hoarder.send(EXPORT, export)
    except (TimeoutError, OSError):
        pass
    writer.ask("get a 1")
    eventually("the hoarder was cut", lambda: daemon.stats()["sessions_cut_total"] >= 1)
    hoarder.close()
    writer.ask("drop")
    writer.ask("withdraw a")
    writer.leave()
    ledger.settle()


@pytest.mark.parametrize(
    ("limit", "named"),
    [
        ("--nofile=12:12", "needs .* more descriptors to start and got .* \\(RLIMIT_NOFILE"),
        ("--nproc=4:4", "needs .* more threads to start and got .* \\(RLIMIT_NPROC"),
    ],
)
def test_a_daemon_that_lacks_a_resource_names_it_at_the_start(limit: str, named: str) -> None:
    """Without this check gRPC would abort the process."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user, whose processes are counted")
    prefix = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "prlimit", limit]
    with tempfile.TemporaryDirectory() as directory:
        os.chown(directory, 54321, 54321)
        done = subprocess.run([*prefix, str(DAEMON), "--directory", directory], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1, done
    assert re.search(named, done.stderr), done.stderr


def test_descriptor_exhaustion_in_the_daemon(tmp_path: Path, messages: Any) -> None:
    """Fault 15: EMFILE refuses new clients without a busy loop; existing clients are served; the daemon recovers at once."""
    prefix = ["prlimit", "--nofile=64:64"]
    with daemon_in(tmp_path / "broker", "--limit", "sessions_per_uid=2500", prefix=prefix) as daemon:
        ledger = Ledger(daemon)
        client = daemon.client()
        client.ask("put a 4096 1")
        crowd: list[socket.socket] = []
        for _ in range(300):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            connection.settimeout(PATIENCE_S)
            connection.connect(str(daemon.directory / "lifeline.sock"))
            crowd.append(connection)
        for _ in range(20):
            client.ask("get a 1")
        before = sum(os.times()[:2])
        busy = cpu_seconds(daemon.pid)
        client.ask("check")
        assert cpu_seconds(daemon.pid) - busy < 1 + sum(os.times()[:2]) - before
        for connection in crowd:
            connection.close()
        late = eventually("newcomers are served again", lambda: try_client(daemon))
        late.ask("get a 1")
        late.leave()
        client.ask("drop")
        client.ask("withdraw a")
        client.leave()
        ledger.settle()


def cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def try_client(daemon: Daemon) -> Any:
    client = daemon.client()
    try:
        client.ask("stats")
        return client
    except Refused:
        client.kill()
        return None


def test_descriptor_exhaustion_in_a_client(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 16: a client without room for a descriptor gets an error, and holds no lease for it."""
    writer = daemon.client()
    writer.ask("put a 65536 1")
    poor = daemon.client(prefix=["prlimit", "--nofile=256"])
    poor.ask("stats")
    resource.prlimit(poor.pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{poor.pid}/fd")), 256))
    with pytest.raises(Refused):
        poor.ask("get a 1")
    resource.prlimit(poor.pid, resource.RLIMIT_NOFILE, (256, 256))
    poor.ask("get a 1")
    poor.ask("check")
    poor.ask("drop")
    poor.ask("flush")
    ledger.settle(sessions=2, shares=1)
    writer.ask("withdraw a")
    writer.leave()
    poor.leave()
    ledger.settle()


def test_hostile_descriptors(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 17: descriptors that a client sends are closed, and the client is disconnected."""
    read, write = os.pipe()
    null = os.open("/dev/null", os.O_RDONLY)
    shrinking = os.memfd_create("hostile")
    descriptors = len(daemon.links())
    hello = messages.OpenSessionRequest(protocol_min=1, protocol_max=1).SerializeToString()
    for sent in ([read], [null], [shrinking], [shrinking] * 253):
        for opened, verb, payload in ((True, GET_STATS, b""), (False, OPEN_SESSION, hello)):
            line = raw_lifeline(daemon, messages) if opened else RawLifeline(daemon.directory, messages)
            try:
                line.send(verb, payload, sent)
            except PermissionError:  # Linux 6.16: the kernel accepts no descriptors for the daemon
                line.send(99)
                line.receive()
            else:
                assert line.ended()
            line.close()
    for fd in (read, write, null, shrinking):
        os.close(fd)
    eventually("every foreign descriptor is closed", lambda: len(daemon.links()) <= descriptors)
    ledger.settle()


@pytest.mark.parametrize("door", ["the frame is read", "the frame is never read", "gRPC"])
def test_a_descriptor_whose_close_blocks(daemon: Daemon, ledger: Ledger, messages: Any, door: str) -> None:
    """Fault 17: closing the last reference to a lingering socket blocks no thread that serves other clients."""
    with lingering_socket() as connection:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", connection.fileno()))]
        if door == "gRPC":
            hostile = socket.socket(socket.AF_UNIX)
            hostile.connect(str(daemon.directory / "broker.sock"))
            frames = [b"P"]
        else:
            hostile = RawLifeline(daemon.directory, messages).socket
            frames = [HEADER.pack(GET_STATS, 0, 0, 1)]
            if door == "the frame is never read":
                daemon.process.send_signal(signal.SIGSTOP)  # so that both are in the queue
                os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED)
                hostile.send(HEADER.pack(99, 0, 0, 1))  # it is disconnected for this frame
        try:
            hostile.sendmsg(frames, rights)
        except PermissionError:
            pass
        else:
            connection.detach()
            os.close(struct.unpack("i", rights[0][2])[0])  # the daemon has the last reference
        daemon.process.send_signal(signal.SIGCONT)
        for _ in range(3):
            client = daemon.client()
            client.ask("stats")
            client.leave()
        hostile.close()
        probe = socket.socket(socket.AF_UNIX)
        probe.settimeout(PATIENCE_S)
        probe.connect(str(daemon.directory / "broker.sock"))
        probe.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        assert probe.recv(9), "the gRPC door no longer answers"
        probe.close()
    ledger.settle()
