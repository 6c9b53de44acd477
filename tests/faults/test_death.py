# SPDX-License-Identifier: Apache-2.0
"""Clients and daemons die, stop, fork: faults 1-9 of the catalogue. Every test ends with the ledger."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import CLIENT, PATIENCE_S, Client, Daemon, Ledger, Memory, Refused, daemon_in, eventually

MIB = 1 << 20
GPUS = ["cuda_vmm", "cuda_ipc"]
OWNERS = "what a cudaIpcMemHandle opens is the daemon's, and goes with it"
LONG = bool(os.environ.get("ARRAYBRIDGE_LONG"))
COARSE_CLOCK = 6  # CLOCK_MONOTONIC_COARSE


def test_killed_readers_leave_nothing(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 1: SIGKILL at a random call of an acquire and release loop."""
    chance = random.Random(1)
    writer = daemon.client()
    for i in range(8):
        writer.ask(f"put churn/{i} 65536 1")
    for _ in range(6):
        readers = [daemon.client() for _ in range(5)]
        for reader in readers:
            reader.tell(f"churn {chance.randrange(1000)} 8 1000000")
        for reader in readers:
            eventually("some acquisitions happened", lambda: daemon.stats()["leases"] + daemon.stats()["hazard_slots"] > 0)
            reader.kill()
    ledger.settle(sessions=1, shares=8)
    for i in range(8):
        writer.ask(f"withdraw churn/{i}")
    writer.leave()
    ledger.settle()


def test_shares_outlive_their_killed_producer(daemon: Daemon, ledger: Ledger) -> None:
    """P1: name, generation and every byte remain, and become immutable for all processes after the producer's death."""
    writer, reader = daemon.client(), daemon.client()
    writer.ask("put small 4096 3")
    writer.ask(f"put large {32 * MIB} 4")
    reader.ask("get large 4")
    writer.kill()
    late = daemon.client()
    for client in (reader, late):
        client.ask("get small 3")
        client.ask("get large 4")
        client.ask("check")
    for name in ("small", "large"):
        late.ask(f"withdraw {name}")
    reader.ask("check")  # leased bytes remain although no name refers to them
    with pytest.raises(Refused, match="NOT_FOUND"):
        late.ask("get large 4")
    reader.leave()
    late.leave()
    ledger.settle()


def test_killed_between_place_and_publish(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 2: an unpublished placement is freed completely, and a request that waits for the name times out."""
    waiter = daemon.client()
    waiter.tell("get never 1 wait 3000")
    for _ in range(10_000 if LONG else 150):
        writer = daemon.client()
        writer.ask("place 1048576")
        writer.kill()
        daemon.clients.remove(writer)
    with pytest.raises(Refused, match="DEADLINE_EXCEEDED.*never"):
        waiter.answer()
    waiter.leave()
    ledger.settle()


# The system calls of a client that puts, gets and drops, and the minimum number of each in which it can be killed. The
# number of polls depends on the speed of the broker's answers.
STEPS = {"sendto": 8, "recvmsg": 8, "mmap": 12, "munmap": 2, "poll": 0, "close": 4}


@pytest.mark.not_over(GPUS, "a driver makes system calls of its own")
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("call", STEPS)
def test_killed_at_the_nth_system_call(daemon: Daemon, ledger: Ledger, call: str) -> None:
    """Fault 3: after a kill at any step the ledger is the same, and a published name has all its bytes."""
    keeper = daemon.client()
    keeper.ask("put stays 65536 9")
    script = "put mine 100000 1\nget mine 1\nget stays 9\nput mine 100000 2 replace\ndrop\nget stays 9 private\nflush\n"
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # leak detection does not work under strace
    killed = 0
    for n in range(1, 41):
        command = [
            "strace",
            "-f",
            "-o",
            "/dev/null",
            "-e",
            f"inject={call}:signal=SIGKILL:when={n}",
            str(CLIENT),
            str(daemon.directory),
            "default",
        ]
        done = subprocess.run(command, input=script, text=True, stdout=subprocess.PIPE, timeout=PATIENCE_S, env=environment)
        assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done
        killed += done.returncode != 0
        if keeper.ask("list mine").split():
            try:
                keeper.ask("get mine 1")
            except Refused as error:
                assert "is wrong" in error.message, n
                keeper.ask("get mine 2")
            keeper.ask("drop")
            keeper.ask("withdraw mine")
        if done.returncode == 0 and n > killed + 2:
            break  # the client makes no more such calls
    assert killed >= STEPS[call], f"only {killed} clients died in {call}"
    keeper.ask("get stays 9")
    keeper.ask("drop")
    keeper.ask("withdraw stays")
    keeper.leave()
    ledger.settle()


def test_a_stopped_client_keeps_its_leases_and_blocks_no_other_client(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 4: SIGSTOP is not death."""
    writer, sleeper, other = daemon.client(), daemon.client(), daemon.client()
    writer.ask("put a 65536 1")
    sleeper.ask("get a 1")
    sleeper.signal(signal.SIGSTOP)
    sleeper.tell("check")
    for i in range(50):
        other.ask("get a 1")
        other.ask("drop")
        writer.ask(f"put b 65536 {i} replace")
    other.ask("flush")
    assert daemon.stats()["leases"] == 1
    writer.ask("withdraw a")
    sleeper.signal(signal.SIGCONT)
    assert sleeper.answer() == "1"
    writer.ask("withdraw b")
    for client in (writer, sleeper, other):
        client.leave()
    ledger.settle()


def test_a_zombie_holds_nothing(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 5: a zombie counts as dead."""
    writer, zombie = daemon.client(), daemon.client()
    writer.ask("put a 65536 1")
    zombie.ask("get a 1")
    zombie.signal(signal.SIGKILL)
    eventually("it is a zombie", lambda: Path(f"/proc/{zombie.pid}/stat").read_text().split(") ")[1][0] == "Z")
    ledger.settle(sessions=1, shares=1)
    writer.ask("withdraw a")
    writer.leave()
    zombie.kill()
    ledger.settle()


@pytest.mark.not_over(GPUS, "a forked child may make no call of a CUDA driver")
def test_a_fork_is_a_client_of_its_own(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 6: the child reads inherited arrays, opens its own connection, and releases nothing of its parent's."""
    writer, parent = daemon.client(), daemon.client()
    writer.ask("put a 65536 1")
    writer.ask("put b 65536 2")
    parent.ask("get a 1")
    for _ in range(5):
        parent.ask("fork_get b 2")
    parent.ask("check")
    parent.ask("flush")
    eventually("only the parent's lease is left", lambda: daemon.stats()["leases"] == 1)
    writer.ask("withdraw a")
    parent.ask("check")
    writer.ask("withdraw b")
    writer.leave()
    parent.leave()
    ledger.settle()


def test_a_sleeping_child_does_not_keep_its_dead_parent_alive(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 6: the child inherits the socket's number but does not keep the session open."""
    writer, parent = daemon.client(), daemon.client()
    writer.ask("put a 65536 1")
    parent.ask("get a 1")
    child = int(parent.ask("fork"))
    parent.kill()
    ledger_sessions = eventually("the parent's session ended", lambda: daemon.stats()["sessions"] == 2)
    assert ledger_sessions and daemon.stats()["leases"] == 0
    os.kill(child, signal.SIGKILL)
    writer.ask("withdraw a")
    writer.leave()
    ledger.settle()


@pytest.mark.skipif(os.geteuid() != 0, reason="choosing a process id needs root")
def test_a_reused_process_id_inherits_nothing(daemon: Daemon, ledger: Ledger) -> None:
    """Fault 7: the connection identifies a client, not its process id."""
    writer, first = daemon.client(), daemon.client()
    writer.ask("put a 65536 1")
    first.ask("get a 1")
    number = first.pid
    first.kill()
    second: subprocess.Popen[str] | None = None
    for _ in range(200):
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(number - 1))
        second = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
        if second.pid == number:
            break
        second.kill()
        second.wait()
    assert second is not None
    if second.pid != number:
        pytest.skip("another process took the process id every time")
    ledger.settle(sessions=1, shares=1)  # the new process with this id has no lease
    second.kill()
    second.wait()
    writer.ask("withdraw a")
    writer.leave()
    ledger.settle()


@pytest.mark.not_over(["cuda_ipc"], OWNERS)
def test_sigterm_under_load(tmp_path: Path, memory: Memory) -> None:
    """Fault 8: calls finish or return UNAVAILABLE, mappings remain readable, and the exit is clean."""
    with daemon_in(tmp_path / "broker", memory=memory) as daemon:
        writer = daemon.client()
        for i in range(8):
            writer.ask(f"put churn/{i} 65536 1")
        readers = [daemon.client() for _ in range(4)]
        for i, reader in enumerate(readers):
            reader.ask("get churn/0 1")
            reader.tell(f"churn {i} 8 100000000")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(PATIENCE_S) == 0
        for reader in readers:
            with pytest.raises(Refused, match="UNAVAILABLE"):
                reader.answer()
            reader.ask("check")
        daemon.start()
        writer.insist("put again 4096 5")  # the same client with a new broker process
        for reader in readers:
            reader.insist("get again 5")
            reader.ask("check")


def await_tick() -> None:
    """A client that acquires without calls notices the death of its daemon at the next tick of this clock (docs/explanation/fast-path.md)."""
    before = time.clock_gettime_ns(COARSE_CLOCK)
    eventually("a tick", lambda: time.clock_gettime_ns(COARSE_CLOCK) > before)


@pytest.mark.not_over(["cuda_ipc"], OWNERS)
def test_daemon_killed_and_started_again(daemon: Daemon) -> None:
    """Fault 9 without a descriptor store: arrays in use remain valid, and clients connect to the new broker automatically."""
    writer, reader = daemon.client(), daemon.client()
    writer.ask("put a 65536 1")
    reader.ask("get a 1")
    reader.ask("get a 1 private")
    daemon.process.kill()
    daemon.process.wait()
    await_tick()
    with pytest.raises(Refused, match="UNAVAILABLE"):
        reader.ask("get a 1")
    reader.ask("check")
    daemon.start()
    ledger = Ledger(daemon)
    with pytest.raises(Refused, match="NOT_FOUND"):
        reader.ask("get a 1")
    writer.insist("put a 65536 2")
    reader.ask("get a 2")
    assert reader.ask("check") == "3"
    writer.ask("withdraw a")
    reader.leave()
    writer.leave()
    ledger.settle()


def test_a_client_without_arrays_connects_to_the_next_broker(daemon: Daemon) -> None:
    """Fault 9, also for memory that is freed with the daemon: unused old mappings cause no error."""
    writer, reader = daemon.client(), daemon.client()
    writer.ask("put a 65536 1")
    reader.ask("get a 1")
    reader.ask("drop")
    daemon.process.kill()
    daemon.process.wait()
    await_tick()
    daemon.start()
    ledger = Ledger(daemon)
    with pytest.raises(Refused, match="NOT_FOUND"):
        reader.insist("get a 1")
    writer.insist("put a 65536 2")
    reader.ask("get a 2")
    reader.ask("check")
    writer.ask("withdraw a")
    reader.leave()
    writer.leave()
    ledger.settle()


def test_a_tree_is_published_completely_or_not_at_all(daemon: Daemon, ledger: Ledger) -> None:
    """The arrays of one share appear together, also for waiting readers, and whenever their producer dies."""
    chance = random.Random(3)
    reader, steady = daemon.client(), daemon.client()
    reader.tell("get tree/waited 100 wait 60000")
    eventually("it waits", lambda: daemon.stats()["waiting"] == 1)
    steady.ask("tree tree/waited 65536 100 12")
    reader.answer()
    for number in range(30):
        maker = daemon.client()
        maker.tell(f"tree tree/{number} 65536 {number} 12")
        if number % 3 == 0:
            maker.answer()
        for _ in range(chance.randrange(60)):
            reader.ask("stats")
        maker.kill()
        daemon.clients.remove(maker)
    found = reader.ask("list tree/").split()
    assert {"tree/0", "tree/3", "tree/waited"} <= set(found)
    for name in found:
        if name != "tree/waited":
            reader.ask(f"get {name} {name.removeprefix('tree/')}")
    assert int(reader.ask("check")) == len(found)
    for name in found:
        reader.ask(f"withdraw {name}")
    reader.ask("check")
    reader.leave()
    steady.leave()
    ledger.settle()


def test_a_seeded_storm_of_deaths(daemon: Daemon, ledger: Ledger) -> None:
    """Faults 1, 2, 4, 21 together: clients put, get, stop and die in random order; nothing remains."""
    chance = random.Random(7)
    crowd: list[Client] = []
    stays = daemon.client("storm")
    for i in range(4):
        stays.ask(f"put churn/{i} 300000 1")
    for _ in range(120):
        if len(crowd) < 6 or chance.random() < 0.3:
            crowd.append(daemon.client("storm"))
        client = chance.choice(crowd)
        deed = chance.choice(["put", "get", "place", "churn", "kill", "stop"])
        if deed == "kill":
            client.kill()
            crowd.remove(client)
        elif deed == "stop":
            client.signal(signal.SIGSTOP)
            client.signal(signal.SIGCONT)
        elif deed == "put":
            client.ask(f"put storm/{chance.randrange(10)} {8 * chance.randrange(1, 200000)} 1 replace")
        elif deed == "place":
            client.ask(f"place {8 * chance.randrange(1, 400000)}")
        elif deed == "churn":
            client.ask(f"churn {chance.randrange(99)} 4 50")
        else:
            client.ask(f"get churn/{chance.randrange(4)} 1")
            client.ask("check")
    for client in crowd:
        client.kill()
    for name in stays.ask("list").split():
        stays.ask(f"withdraw {name}")
    stays.leave()
    ledger.settle()
