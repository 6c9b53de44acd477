# SPDX-License-Identifier: Apache-2.0
"""Quotas and full memory: faults 20 and 21, and two daemons in one directory (30)."""

from __future__ import annotations

import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from harness import DAEMON, Daemon, Ledger, Memory, Refused, daemon_in, eventually, first_to_answer

MIB = 1 << 20
LARGE = 18 * MIB  # it gets its own arena, and is a multiple of a GPU's granularity
TOO_LONG_MS = 60_000
SHORT_MS = 3000  # it is waited out; a call that a stalled machine delays for longer is repeated


def test_a_quota_names_itself_and_stops_only_its_namespace(tmp_path: Path, memory: Memory) -> None:
    """Fault 20."""
    with daemon_in(tmp_path / "broker", "--namespace-quota", "8MiB", memory=memory, capacity=64 * MIB) as daemon:
        ledger = Ledger(daemon)
        greedy, modest = daemon.client("greedy", timeout_ms=SHORT_MS), daemon.client("modest")
        with pytest.raises(Refused) as caught:
            for i in range(100):
                greedy.repeat(f"put g/{i} {MIB} 1")
        assert caught.value.code == "RESOURCE_EXHAUSTED"
        assert "greedy" in caught.value.message and "its quota of 8.0 MiB" in caught.value.message
        modest.ask(f"put m {4 * MIB} 2")
        modest.ask("get m 2")
        with pytest.raises(Refused, match="RESOURCE_EXHAUSTED.*"):
            modest.ask(f"put never {9 * MIB} 1")  # it can never fit, so it does not wait
        greedy.kill()
        modest.ask("check")
        names = daemon.client("greedy")
        for name in names.ask("list").split():
            names.ask(f"withdraw {name}")
        names.leave()
        modest.ask("drop")
        modest.ask("withdraw m")
        modest.leave()
        ledger.settle()


def test_waiters_are_served_first_come_first_served(tmp_path: Path, memory: Memory) -> None:
    """Fault 21: freed memory goes to the longest-waiting request; killed clients and expired requests leave the line."""
    with daemon_in(tmp_path / "broker", memory=memory, capacity=8 * LARGE) as daemon:
        ledger = Ledger(daemon)
        holders = [daemon.client(timeout_ms=TOO_LONG_MS) for _ in range(8)]
        for i, holder in enumerate(holders):
            holder.ask(f"put held/{i} {LARGE} {i}")
        waiters = []
        for i in range(8):
            waiter = daemon.client(timeout_ms=TOO_LONG_MS)
            waiter.tell(f"put late/{i} {LARGE} {i}")
            waiters.append(waiter)
            eventually("it waits", lambda i=i: daemon.stats()["waiting"] == i + 1)
        hasty = daemon.client(timeout_ms=SHORT_MS)
        with pytest.raises(Refused) as caught:
            hasty.repeat(f"put hasty {LARGE} 1")
        assert caught.value.code == "RESOURCE_EXHAUSTED" and str(8 * LARGE) in caught.value.message
        waiters[1].kill()
        waiters[4].kill()
        eventually("the dead left the line", lambda: daemon.stats()["waiting"] == 6)
        order = [waiters[i] for i in (0, 2, 3, 5, 6, 7)]
        control = daemon.client()
        for i, expected in enumerate(order):
            holders[i].leave()
            control.ask(f"withdraw held/{i}")
            expected.answer()  # this client is served, although all the others wait too
            assert daemon.stats()["waiting"] == len(order) - i - 1
        for i in (0, 2, 3, 5, 6, 7):
            control.ask(f"get late/{i} {i}")
        control.ask("drop")
        for name in control.ask("list").split():
            control.ask(f"withdraw {name}")
        control.leave()
        for client in [*order, *holders[6:], hasty]:
            client.leave()
        ledger.settle()


def test_no_waiter_is_forgotten_when_others_are_killed(tmp_path: Path, memory: Memory) -> None:
    """Fault 21 with many clients: 60 queued Allocates with deadlines, a quarter killed, and no lost wake-up."""
    with daemon_in(tmp_path / "broker", "--limit", "sessions_per_uid=200", memory=memory, capacity=4 * LARGE) as daemon:
        ledger = Ledger(daemon)
        holder = daemon.client(timeout_ms=TOO_LONG_MS)
        for i in range(4):
            holder.ask(f"put held/{i} {LARGE} 1")
        crowd = [daemon.client(timeout_ms=TOO_LONG_MS) for _ in range(60)]
        for i, client in enumerate(crowd):
            client.tell(f"put late/{i} {LARGE} 1")
        eventually("all wait", lambda: daemon.stats()["waiting"] == 60)
        for client in crowd[::4]:
            client.kill()
        alive = {client: i for i, client in enumerate(crowd) if i % 4}
        eventually("the dead left", lambda: daemon.stats()["waiting"] == len(alive))
        for i in range(4):
            holder.ask(f"withdraw held/{i}")
        holder.leave()
        control = daemon.client()
        while alive:  # in order of arrival, which differs from the order of their numbers
            client = first_to_answer(alive)
            client.answer()
            control.ask(f"withdraw late/{alive.pop(client)}")
            client.leave()
        control.leave()
        ledger.settle()


def test_a_waiter_for_a_name_is_woken(daemon: Daemon, ledger: Ledger) -> None:
    readers = [daemon.client() for _ in range(10)]
    for reader in readers:
        reader.tell("get soon 1 wait 60000")
    eventually("all wait", lambda: daemon.stats()["waiting"] == 10)
    readers[3].kill()
    writer = daemon.client()
    writer.ask("put soon 65536 1")
    for i, reader in enumerate(readers):
        if i != 3:
            reader.answer()
            reader.leave()
    writer.ask("withdraw soon")
    writer.leave()
    ledger.settle()


def test_memory_is_recycled_not_grown(daemon: Daemon, ledger: Ledger) -> None:
    """Repeated replacement of a name needs only two arenas; readers keep the generation that they hold."""
    writer, reader = daemon.client(), daemon.client()
    for i in range(300):
        writer.ask(f"put frame 3000000 {i} replace")
        if i % 50 == 0:
            reader.ask(f"get frame {i}")
    reader.ask("check")
    reader.ask("drop")
    reader.ask("flush")
    assert daemon.stats()["charged_bytes"] <= 64 * MIB
    writer.ask("withdraw frame")
    writer.leave()
    reader.leave()
    ledger.settle()


@pytest.mark.not_over(["cuda_vmm", "cuda_ipc"], "device memory is no file")
def test_a_limit_on_the_size_of_files_causes_a_refusal_and_no_signal(daemon: Daemon, ledger: Ledger) -> None:
    """The limit of `ulimit -f`: the kernel would send SIGXFSZ for a larger arena."""
    resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (4 * MIB, 4 * MIB))
    writer, begun = daemon.client(timeout_ms=TOO_LONG_MS), time.monotonic()
    with pytest.raises(Refused, match=f"RESOURCE_EXHAUSTED.* {LARGE} bytes.*File too large"):
        writer.ask(f"put large {LARGE} 1")
    assert time.monotonic() - begun < TOO_LONG_MS / 1000, "it waited for memory that cannot become free"
    writer.ask("put small 4096 2")
    writer.ask("get small 2")
    writer.ask("drop")
    writer.ask("withdraw small")
    writer.leave()
    ledger.settle()


@pytest.mark.not_over(["cuda_vmm", "cuda_ipc"], "device memory cannot be sealed")
def test_sealed_shares_are_enforced(daemon: Daemon, ledger: Ledger) -> None:
    writer = daemon.client()
    assert writer.ask("put a 65536 1 sealed").endswith("enforced")
    assert writer.ask("put b 65536 1").endswith("by_contract")
    writer.ask("get a 1")
    writer.ask("get a 1 private")
    writer.ask("scribble")
    reader = daemon.client()
    reader.ask("get a 1")
    reader.leave()
    for name in "ab":
        writer.ask(f"withdraw {name}")
    writer.leave()
    ledger.settle()


def test_the_second_daemon_refuses_and_a_stale_socket_is_replaced(daemon: Daemon) -> None:
    """Fault 30."""
    second = subprocess.run([str(DAEMON), "--directory", str(daemon.directory)], capture_output=True, text=True)
    assert second.returncode != 0
    assert "another arraybridged is running in the directory" in second.stderr + second.stdout
    daemon.warden.ask("stats")  # the first daemon is running and keeps its sockets
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait()
    assert (daemon.directory / "lifeline.sock").exists()
    daemon.start()
    eventually("the warden is back", lambda: "sessions" in try_stats(daemon))


def try_stats(daemon: Daemon) -> dict[str, int]:
    try:
        return daemon.stats()
    except Refused:
        return {}


@pytest.mark.not_over(["cuda_vmm", "cuda_ipc"], "device memory cannot be sealed")
def test_a_refused_sealed_put_leaves_nothing(daemon: Daemon, ledger: Ledger) -> None:
    """Its arena is unmapped by then, and idle later."""
    writer = daemon.client()
    writer.ask("put a 65536 1 sealed")
    for _ in range(3):
        with pytest.raises(Refused, match="ALREADY_EXISTS"):
            writer.ask("put a 65536 2 sealed")
    eventually("their arenas are given back", lambda: daemon.stats()["arenas"] == 1)
    writer.ask("get a 1")
    writer.ask("withdraw a")
    writer.leave()
    ledger.settle()


@pytest.mark.not_over(["cuda_vmm", "cuda_ipc"], "device memory cannot be sealed")
def test_a_sealed_share_that_is_replaced_gives_its_arena_back(daemon: Daemon, ledger: Ledger) -> None:
    """Its maker lives on, and publishes nothing else from the arena."""
    writer, reader = daemon.client(), daemon.client()
    for number in range(20):
        writer.ask(f"put a 65536 {number} sealed replace")
        reader.ask(f"get a {number}")
    eventually("only those that are read are left", lambda: daemon.stats()["arenas"] == 20)
    reader.ask("check")
    reader.ask("drop")
    eventually("only the last one is left", lambda: daemon.stats()["arenas"] == 1)
    writer.ask("withdraw a")
    for client in (writer, reader):
        client.leave()
    ledger.settle()
