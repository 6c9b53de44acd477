# SPDX-License-Identifier: Apache-2.0
"""Clients that misuse the descriptors they get, or name objects of others: faults 18-20, 32."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import (
    ACQUIRE,
    ALLOCATE,
    CALLS_BEFORE_QUEUE,
    EXPORT,
    MAPPED,
    PUBLISH,
    REDEEM,
    RELEASE,
    Client,
    Daemon,
    Ledger,
    RawLifeline,
    Refused,
    client_flags,
    daemon_in,
    eventually,
    raw_lifeline,
)


def test_a_handed_out_arena_cannot_be_modified(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 18: every column of the seal matrix, on the descriptor that the broker hands out."""
    writer, line = daemon.client(), raw_lifeline(daemon, messages)
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


def test_forged_ids_reveal_nothing(daemon: Daemon, ledger: Ledger, messages: Any) -> None:
    """Fault 19: a foreign id and an invented one get the same answer and have no effect."""
    owner, thief = raw_lifeline(daemon, messages), raw_lifeline(daemon, messages)
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
            "arena_generation": allocated.handle.generation,
            "size": 4096,
            "specs": spec,
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
    refused(lambda: publish(owner, name="b"))  # these bytes are already published
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
    foreign = refused(
        lambda: thief.call(
            EXPORT,
            messages.ExportRequest(arena=allocated.handle.arena, arena_generation=allocated.handle.generation),
            messages.ExportResponse,
        )
    )
    missing = refused(lambda: thief.call(EXPORT, messages.ExportRequest(arena=424242, arena_generation=1), messages.ExportResponse))
    assert foreign == missing
    for token in (b"", b"x" * 16, bytes(1000)):
        assert refused(lambda token=token: thief.call(REDEEM, messages.RedeemRequest(token=token), messages.RedeemResponse)).startswith(
            "5 "
        )
    foreign_id = messages.ShareRef(id=published.share)
    same_uid = messages.AcquireRequest(namespace="default", shares=[foreign_id])
    _, (descriptor,) = thief.call(ACQUIRE, same_uid, messages.AcquireResponse)  # an id works like the name
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


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """All users may enter it. Every pytest closes the parents of its tmp_path when it starts."""
    with tempfile.TemporaryDirectory(prefix="arraybridge-thieves-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="a second uid needs root")
def test_two_users_do_not_see_each_other(open_folder: Path) -> None:
    """Faults 19, 20: the same name is a different namespace for each uid; one user cannot use up the other's quota."""
    with daemon_in(open_folder / "broker", "--namespace-quota", "16MiB") as daemon:
        ledger = Ledger(daemon)
        daemon.directory.chmod(0o755)
        (daemon.directory / "lifeline.sock").chmod(0o666)
        ours = daemon.client()
        theirs = daemon.client(timeout_ms=3000, prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
        try:
            theirs.repeat("stats")
        except (EOFError, Refused) as error:
            pytest.skip(f"another uid cannot run the client from this checkout: {error}")
        ours.ask("put secret 65536 1")
        with pytest.raises(Refused, match="NOT_FOUND"):
            theirs.repeat("get secret 1")
        assert theirs.repeat("list").split() == []
        with pytest.raises(Refused, match="NOT_FOUND"):
            theirs.repeat("withdraw secret")
        theirs.repeat("put secret 65536 2")
        with pytest.raises(Refused, match="RESOURCE_EXHAUSTED QUOTA"):
            for i in range(100):
                theirs.repeat(f"put more/{i} 1000000 1")
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


def areas_written_by(client: Client) -> list[tuple[int, int]]:
    """Its shared pages that it maps writable, once it has all: it opens its queue beside its calls.

    A client that acquires nothing without a call has no hazard page.
    """
    areas = []
    for line in Path(f"/proc/{client.pid}/maps").read_text().splitlines():
        area, rights, *_ = line.split()
        if "/memfd:arraybridge" in line and rights.startswith("rw-s"):
            begin, end = area.split("-")
            areas.append((int(begin, 16), int(end, 16)))
    client.ask("stats")
    return areas if len(areas) >= (2 if "calls" in client_flags else 3) else []


@pytest.mark.skipif(os.geteuid() != 0, reason="writing into another process needs root")
def test_a_client_that_scribbles_over_all_its_memory(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 32: garbage in all that a client maps writable: its arenas, hazard page and queue. Only that client is affected."""
    chance = random.Random(32)
    other, reader, scribbler = daemon.client(), daemon.client(), daemon.client()
    other.ask("put theirs 65536 1")
    scribbler.ask("put sealed 65536 2 sealed")
    scribbler.ask("put mine 65536 3")
    scribbler.ask("get theirs 1")
    scribbler.ask("get theirs 1 private")
    for _ in range(CALLS_BEFORE_QUEUE):
        scribbler.ask("stats")
    for client in (other, reader):
        client.ask("get theirs 1")
        client.ask("get sealed 2")
    writable = eventually("an arena, a hazard page and a queue", lambda: areas_written_by(scribbler))
    with open(f"/proc/{scribbler.pid}/mem", "r+b", buffering=0) as memory:
        for begin, end in writable:
            memory.seek(begin)
            memory.write(chance.randbytes(end - begin))
    for client in (other, reader):
        client.ask("check")
        client.ask("put more 65536 4 replace")
        client.ask("get more 4")
    scribbler.kill()
    eventually("its session has ended", lambda: daemon.stats()["sessions"] == 3)
    reader.ask("check")
    for name in reader.ask("list").split():
        reader.ask(f"withdraw {name}")
    for client in (other, reader):
        client.leave()
    ledger.settle()
