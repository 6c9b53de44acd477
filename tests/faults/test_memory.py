# SPDX-License-Identifier: Apache-2.0
"""Memory that is fragmented, small, limited or charged to a control group: faults 22-25."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import SANITIZED, Client, Ledger, Refused, daemon_in, eventually

MIB = 1 << 20
LONG = bool(os.environ.get("ARRAYBRIDGE_LONG"))
NOISE = 8 * MIB  # memory that a process needs for itself: heap, stacks, pages of its programs
# Number of arrays, of which one in `every` stays; largest array; capacity.
SCATTERED = [(20_000, 100, MIB, 256 * MIB)] + ([(1_000_000, 5_000, MIB, 256 * MIB), (2_000, 100, 64 * MIB, 2048 * MIB)] if LONG else [])


@pytest.mark.parametrize(("rounds", "every", "most", "capacity"), SCATTERED)
def test_scattered_shares_leave_the_rest_usable(tmp_path: Path, rounds: int, every: int, most: int, capacity: int) -> None:
    """Fault 22: some arrays of all sizes stay; their owner can use nine tenths of all other bytes."""
    piece = 65536
    with daemon_in(tmp_path / "broker", "--host-capacity", str(capacity)) as daemon:
        ledger = Ledger(daemon)
        owner = daemon.client(timeout_ms=60_000)
        kept = owner.numbers(f"scatter s {most} 22 {rounds} {every}")
        assert kept["number"] == rounds // every
        owner.ask("flush")
        free = capacity - kept["bytes"]
        for placed in range(free * 9 // 10 // piece):
            try:
                owner.ask(f"place {piece}")
            except Refused as refused:
                raise AssertionError(f"{placed * piece} of {free} free bytes were allocated: {refused}") from None
        for name in owner.ask("list s/kept/").split():
            owner.ask(f"get {name} {name.rpartition('/')[2]}")
        owner.ask("drop")
        for name in owner.ask("list").split():
            owner.ask(f"withdraw {name}")
        owner.leave()
        ledger.settle()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
def test_a_full_shared_memory_file_system_does_not_matter(tmp_path: Path) -> None:
    """Fault 23: arrays are no files in /dev/shm, so neither its size of 8 MiB nor its being full limits them."""
    fill = "mount -t tmpfs -o size=8m tmpfs /dev/shm && ! head -c 9m /dev/zero >/dev/shm/full 2>/dev/null"
    small = ["unshare", "--mount", "sh", "-c", f'{fill} && exec "$@"', "sh"]
    with daemon_in(tmp_path / "broker", prefix=small) as daemon:
        ledger = Ledger(daemon)
        writer, reader = daemon.client(prefix=small), daemon.client(prefix=small)
        writer.ask(f"put large {64 * MIB} 1")
        writer.ask(f"put sealed {64 * MIB} 2 sealed")
        for client in (writer, reader):
            client.ask("get large 1")
            client.ask("get sealed 2 private")
            client.ask("scribble")
        for pid in (daemon.pid, writer.pid, reader.pid):
            shm = Path(f"/proc/{pid}/root/dev/shm")
            assert [path.name for path in shm.iterdir()] == ["full"]
            assert os.statvfs(shm).f_bavail == 0
        for name in ("large", "sealed"):
            writer.ask(f"withdraw {name}")
        writer.leave()
        reader.leave()
        ledger.settle()


class ControlGroup:
    """A control group for memory, of version 1 or 2, below the group of this process."""

    def __init__(self, name: str) -> None:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if "memory" in controllers.split(","):
                self.usage, self.limit = "memory.usage_in_bytes", "memory.limit_in_bytes"
                above = Path("/sys/fs/cgroup/memory") / group.lstrip("/")
                break
            above = Path("/sys/fs/cgroup") / group.lstrip("/")
        else:
            self.usage, self.limit = "memory.current", "memory.max"
        self.path = above / f"arraybridge-{os.getpid()}-{name}"
        try:
            self.path.mkdir()
            self.bytes()
        except OSError as error:
            with contextlib.suppress(OSError):
                self.path.rmdir()
            pytest.skip(f"no control group for memory can be made here: {error}")

    @property
    def prefix(self) -> list[str]:
        """Runs a command in the group."""
        return ["sh", "-c", f'echo $$ >{self.path}/cgroup.procs && exec "$@"', "sh"]

    def bytes(self) -> int:
        return int((self.path / self.usage).read_text())

    def set_limit(self, size: int) -> None:
        (self.path / self.limit).write_text(str(size))


@contextlib.contextmanager
def control_groups(*names: str) -> Iterator[list[ControlGroup]]:
    groups: list[ControlGroup] = []
    try:
        for name in names:
            groups.append(ControlGroup(name))
        yield groups
    finally:
        for group in groups:
            eventually(f"{group.path} is empty", lambda group=group: not (group.path / "cgroup.procs").read_text())
            group.path.rmdir()


@pytest.mark.skipif(SANITIZED, reason="a sanitizer needs more memory of its own than the control group has")
def test_the_daemon_refuses_before_its_control_group_is_full(tmp_path: Path) -> None:
    """Fault 24: the kernel would kill a process that allocates beyond the limit of 64 MiB, and tells it nothing before."""
    with control_groups("limited") as (group,):
        group.set_limit(64 * MIB)
        with daemon_in(tmp_path / "broker", prefix=group.prefix) as daemon:
            ledger = Ledger(daemon)
            assert daemon.stats()["capacity_bytes"] < 64 * MIB
            client = daemon.client(timeout_ms=3000)
            with pytest.raises(Refused, match="RESOURCE_EXHAUSTED"):
                client.repeat(f"put never {128 * MIB} 1")
            with pytest.raises(Refused, match="RESOURCE_EXHAUSTED"):
                for i in range(64):
                    client.repeat(f"put small/{i} {2 * MIB} {i}")
            for i, name in enumerate(sorted(client.repeat("list").split(), key=lambda name: int(name.split("/")[1]))):
                client.repeat(f"get {name} {i}")
            client.ask("drop")
            for name in client.repeat("list").split():
                client.repeat(f"withdraw {name}")
            client.leave()
            ledger.settle()


def test_the_daemons_control_group_pays_for_all_arrays(tmp_path: Path) -> None:
    """Fault 25: the daemon populates the memory, so its group is charged, and those of writers and readers are not."""
    size = 64 * MIB
    charged = size - (os.cpu_count() or 1) * MIB  # a processor may have charged up to 64 pages in advance, and counts them later
    with control_groups("daemon", "writer", "reader") as (ours, writers, readers):
        with daemon_in(tmp_path / "broker", prefix=ours.prefix) as daemon:
            ledger = Ledger(daemon)

            def ready(group: ControlGroup) -> Client:
                client = daemon.client(prefix=group.prefix)
                client.ask("stats")
                return client

            writer, reader = ready(writers), ready(readers)
            before = {group: group.bytes() for group in (ours, writers, readers)}
            writer.ask(f"put large {size} 1")
            reader.ask("get large 1")
            grown = {group: group.bytes() - before[group] for group in before}
            assert grown[ours] >= charged, grown
            assert grown[writers] < NOISE and grown[readers] < NOISE, grown
            writer.leave()  # the charge stays where it is
            reader.ask("check")
            assert ours.bytes() - before[ours] >= charged
            reader.ask("withdraw large")
            reader.leave()
            ledger.settle()
            eventually("its group has the bytes back", lambda: ours.bytes() - before[ours] < NOISE)
