"""Clients that break the rules: faults 12-19. A hostile client costs only itself."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import resource
import select
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import (
    ACQUIRE,
    ALLOCATE,
    CLIENT,
    EXPORT,
    GET_STATS,
    HEADER,
    MAPPED,
    OPEN_SESSION,
    PATIENCE_S,
    PUBLISH,
    REDEEM,
    RELEASE,
    Daemon,
    Ledger,
    RawLifeline,
    Refused,
    daemon_in,
    eventually,
)


def raw(daemon: Daemon, messages: Any) -> RawLifeline:
    line = RawLifeline(daemon.directory, messages)
    line.hello()
    return line


def test_garbage_at_the_lifeline(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 12: noise ends the connection that sent it, and nothing else."""
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
        line = raw(daemon, messages)
        line.send(verb, b"")
        _, status, _, _, _ = line.receive()
        assert status == 12  # UNIMPLEMENTED: a newer client learns that this broker is older
        line.close()
    for verb in range(2, 14):
        line = raw(daemon, messages)
        line.send(verb, b"\xff" * 64)
        assert line.ended()
        line.close()
    other.ask("withdraw a")
    other.leave()
    ledger.settle()


def test_garbage_at_the_grpc_door(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 12, the other door: bytes that are no HTTP/2."""
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


def test_silent_connections_are_ended(tmp_path: Path, messages: Any) -> None:
    """Fault 13: a hello has a deadline; nobody else notices."""
    with daemon_in(tmp_path / "broker", "--limit", "hello_timeout=300ms") as daemon:
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
    """Fault 14: who asks and never reads is ended and counted; others keep their rate."""
    slow, client = raw(daemon, messages), daemon.client()
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


def test_descriptors_that_nobody_reads(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 14: descriptors in flight are bounded for each session."""
    writer, hoarder = daemon.client(), raw(daemon, messages)
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


def test_descriptor_exhaustion_in_the_daemon(tmp_path: Path, messages: Any) -> None:
    """Fault 15: EMFILE refuses newcomers, without a busy loop; old clients are served; it recovers at once."""
    prefix = ["prlimit", "--nofile=64:64"]
    with daemon_in(tmp_path / "broker", "--limit", "connections_per_uid=5000", prefix=prefix) as daemon:
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
    """Fault 17: whatever a client sends along is closed, and the client is cut."""
    read, write = os.pipe()
    null = os.open("/dev/null", os.O_RDONLY)
    shrinking = os.memfd_create("hostile")
    descriptors = len(daemon.links())
    hello = messages.OpenSessionRequest(protocol_min=1, protocol_max=1).SerializeToString()
    for sent in ([read], [null], [shrinking], [shrinking] * 253):
        for opened, verb, payload in ((True, GET_STATS, b""), (False, OPEN_SESSION, hello)):
            line = raw(daemon, messages) if opened else RawLifeline(daemon.directory, messages)
            try:
                line.send(verb, payload, sent)
            except PermissionError:  # Linux 6.16: the kernel takes no descriptors for the daemon
                line.send(99)
                line.receive()
            else:
                assert line.ended()
            line.close()
    for fd in (read, write, null, shrinking):
        os.close(fd)
    eventually("every foreign descriptor is closed", lambda: len(daemon.links()) <= descriptors)
    ledger.settle()


@contextlib.contextmanager
def lingering_socket() -> Iterator[socket.socket]:
    """Whoever closes it last sleeps in close() until the other end, which nobody reads, has taken all of it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = socket.create_connection(server.getsockname())
        far_end, _ = server.accept()
        with far_end:
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    connection.send(bytes(65536))
            connection.setblocking(True)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 65535))
            yield connection
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # if it was not taken
            connection.close()


@pytest.mark.parametrize("door", ["the frame is read", "the frame is never read", "gRPC"])
def test_a_descriptor_that_sleeps_when_it_is_closed(daemon: Daemon, ledger: Ledger, messages: Any, door: str) -> None:
    """Fault 17: the last reference to a socket that lingers costs the daemon no thread that serves others."""
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
                daemon.process.send_signal(signal.SIGSTOP)  # so that both lie in the queue
                os.waitid(os.P_PID, daemon.process.pid, os.WSTOPPED)
                hostile.send(HEADER.pack(99, 0, 0, 1))  # cut for this one
        try:
            hostile.sendmsg(frames, rights)
        except PermissionError:
            pass
        else:
            connection.detach()
            os.close(struct.unpack("i", rights[0][2])[0])  # the daemon's is the last
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
        assert probe.recv(9), "the gRPC door answers no more"
        probe.close()
    ledger.settle()


def test_a_log_that_nobody_reads(tmp_path: Path, messages: Any) -> None:
    """Fault 27: a full pipe behind standard error holds nobody up; lines are dropped, and counted."""
    fifo = tmp_path / "log"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    with daemon_in(tmp_path / "broker", prefix=["sh", "-c", f'exec "$@" 2>{fifo}', "sh"]) as daemon:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(reader, bytes(4096))
        ledger = Ledger(daemon)

        def break_a_rule() -> None:
            line = RawLifeline(daemon.directory, messages)
            line.send(99)  # cut, and logged
            assert line.ended()
            line.close()

        break_a_rule()
        client = daemon.client()
        client.ask("stats")
        client.leave()
        read = b""
        with contextlib.suppress(BlockingIOError):
            while True:
                os.read(reader, 65536)
        break_a_rule()
        while b"dropped" not in read:
            assert select.select([reader], [], [], PATIENCE_S)[0]
            read += os.read(reader, 65536)
        ledger.settle()
    os.close(reader)


def test_nothing_can_be_done_to_a_handed_out_arena(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 18: every column of the seal matrix, on the very descriptor that the broker gives out."""
    writer, line = daemon.client(), raw(daemon, messages)
    writer.ask("put a 65536 1")
    request = messages.AcquireRequest(namespace="default", shares=[messages.ShareRef(name="a")])
    answer, (descriptor,) = line.call(ACQUIRE, request, messages.AcquireResponse)
    handle = answer.shares[0].share.handle
    for flags, protection in ((mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE), (mmap.MAP_SHARED, mmap.PROT_WRITE)):
        with pytest.raises(OSError):
            mmap.mmap(descriptor, handle.arena_size, flags, protection)
    for act in (
        lambda: os.pwrite(descriptor, b"x", 0),
        lambda: os.ftruncate(descriptor, 0),
        lambda: os.posix_fallocate(descriptor, 0, 2 * handle.arena_size),
        lambda: punch(descriptor),
        lambda: fcntl.fcntl(descriptor, 1033, 1),  # F_ADD_SEALS
    ):
        with pytest.raises(OSError):
            act()
    try:
        again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    except OSError:
        pass
    else:
        with pytest.raises(OSError):
            mmap.mmap(again, handle.arena_size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        with pytest.raises(OSError):
            os.pwrite(again, b"x", 0)
        with pytest.raises(OSError):
            os.ftruncate(again, 0)
        os.close(again)
    private = mmap.mmap(descriptor, handle.arena_size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    private[:65536] = b"\xee" * 65536
    private.close()
    os.close(descriptor)
    line.close()
    reader = daemon.client()
    reader.ask("get a 1")
    reader.leave()
    writer.ask("withdraw a")
    writer.leave()
    ledger.settle()


def punch(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(descriptor, 3, ctypes.c_long(0), ctypes.c_long(4096)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def test_forged_ids_tell_nothing(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 19: a foreign or a made-up id is answered alike, and does nothing."""
    owner, thief = raw(daemon, messages), raw(daemon, messages)
    allocated, (descriptor,) = owner.call(
        ALLOCATE, messages.AllocateRequest(namespace="default", size=2 << 20, timeout_ms=1000), messages.AllocateResponse
    )
    memory = mmap.mmap(descriptor, allocated.handle.arena_size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(descriptor)
    owner.call(MAPPED, messages.MappedRequest(arena=allocated.handle.arena), messages.MappedResponse)

    def publish(line: RawLifeline, **change: Any) -> Any:
        spec = messages.PublishRequest().specs
        spec.arrays.add(code=2, bits=32, lanes=1, dtype="float32", shape=[1024], size=4096)
        fields = {"namespace": "default", "name": "a", "arena": allocated.handle.arena} | {
            "arena_generation": allocated.handle.generation, "size": 4096, "specs": spec
        }
        return line.call(PUBLISH, messages.PublishRequest(**(fields | change)), messages.PublishResponse)[0]

    def refused(act: Any) -> str:
        with pytest.raises(Refused) as caught:
            act()
        return f"{caught.value.code} {caught.value.reason}"

    foreign = refused(lambda: publish(thief))
    missing = refused(lambda: publish(thief, arena=10**9))
    assert foreign == missing
    refused(lambda: publish(owner, arena_generation=1))
    refused(lambda: publish(owner, offset=100))
    refused(lambda: publish(owner, offset=allocated.handle.arena_size - 256))
    refused(lambda: publish(owner, offset=2**64 - 256, size=512))
    refused(lambda: publish(owner, size=2**64 - 1))
    refused(lambda: publish(owner, size=0))
    refused(lambda: publish(owner, name="n" * 300))
    published = publish(owner)
    refused(lambda: publish(owner, name="b"))  # these bytes are taken
    wish = messages.AcquireRequest(namespace="default", shares=[messages.ShareRef(name="a")])
    leased, (descriptor,) = owner.call(ACQUIRE, wish, messages.AcquireResponse)
    os.close(descriptor)
    released, _ = thief.call(
        RELEASE,
        messages.ReleaseRequest(leases=[leased.shares[0].lease, 1, 2**63], arenas=[allocated.handle.arena]),
        messages.ReleaseResponse,
    )
    assert released.released == 0
    assert daemon.stats()["leases"] == 1
    foreign = refused(lambda: thief.call(EXPORT, messages.ExportRequest(arena=allocated.handle.arena, arena_generation=allocated.handle.generation), messages.ExportResponse))
    missing = refused(lambda: thief.call(EXPORT, messages.ExportRequest(arena=424242, arena_generation=1), messages.ExportResponse))
    assert foreign == missing
    for token in (b"", b"x" * 16, bytes(1000)):
        assert refused(lambda token=token: thief.call(REDEEM, messages.RedeemRequest(token=token), messages.RedeemResponse)).startswith("5 ")
    foreign_id = messages.ShareRef(id=published.share)
    same_uid = messages.AcquireRequest(namespace="default", shares=[foreign_id])
    _, (descriptor,) = thief.call(ACQUIRE, same_uid, messages.AcquireResponse)  # an id is as good as the name
    os.close(descriptor)
    elsewhere = messages.AcquireRequest(namespace="elsewhere", shares=[foreign_id])
    nowhere = messages.AcquireRequest(namespace="elsewhere", shares=[messages.ShareRef(id=31337)])
    assert refused(lambda: thief.call(ACQUIRE, elsewhere, messages.AcquireResponse)) == refused(
        lambda: thief.call(ACQUIRE, nowhere, messages.AcquireResponse)
    )
    memory.close()
    for line in (owner, thief):
        line.close()
    keeper = daemon.client()
    keeper.ask("withdraw a")
    keeper.leave()
    ledger.settle()


@pytest.mark.skipif(os.geteuid() != 0, reason="a second uid needs root")
def test_two_users_do_not_see_each_other(tmp_path: Path) -> None:
    """Faults 19, 20: the same namespace name is another namespace for another uid; one cannot use up the other's."""
    open_tmp = Path(os.path.realpath(tmp_path))
    with daemon_in(open_tmp / "broker", "--namespace-quota", "16MiB") as daemon:
        ledger = Ledger(daemon)
        daemon.directory.chmod(0o755)
        (daemon.directory / "lifeline.sock").chmod(0o666)
        for parent in list(daemon.directory.parents)[:4]:
            if parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o055)
        ours = daemon.client()
        theirs = daemon.client(timeout_ms=300, prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
        try:
            theirs.ask("stats")
        except (EOFError, Refused) as error:
            pytest.skip(f"another uid cannot run the client from this checkout: {error}")
        ours.ask("put secret 65536 1")
        with pytest.raises(Refused, match="NOT_FOUND"):
            theirs.ask("get secret 1")
        assert theirs.ask("list").split() == []
        with pytest.raises(Refused, match="NOT_FOUND"):
            theirs.ask("withdraw secret")
        theirs.ask("put secret 65536 2")
        with pytest.raises(Refused, match="RESOURCE_EXHAUSTED QUOTA"):
            for i in range(100):
                theirs.ask(f"put more/{i} 1000000 1")
        ours.ask("put mine 4000000 3")
        ours.ask("get secret 1")
        theirs.leave()
        other = daemon.client(prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
        for name in other.ask("list").split():
            other.ask(f"withdraw {name}")
        other.leave()
        for name in ("secret", "mine"):
            ours.ask(f"withdraw {name}")
        ours.leave()
        ledger.settle()
