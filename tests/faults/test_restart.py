# SPDX-License-Identifier: Apache-2.0
"""A killed daemon is continued by the next one, and its clients notice nothing. Every test ends with the ledger."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import ROOT, SIMULATED_CUDA, Client, Daemon, Ledger, Memory, Refused, daemon_in, eventually, outage

SEED = int(os.environ.get("ARRAYBRIDGE_SEED", random.randrange(1 << 30)))
LIVES = int(os.environ.get("ARRAYBRIDGE_LIVES", "1000" if os.environ.get("ARRAYBRIDGE_LONG") else "25"))  # of the storm

# The steps of a request between which the daemon can be killed: each is a failpoint.
POINTS = [
    "lifeline_stored",
    "catalogue_stored",
    "hazard_page_stored",
    "queue_stored",
    "arena_stored",
    "arena_recorded",
    "share_recorded",
    "share_inserted",
    "share_published",
    "lease_recorded",
    "name_taken",
    "share_retired",
    "request_taken",
    "request_served",
    "publish_served",
]
# A request on the socket that a daemon has read is lost with it, also one that nobody waits for.
PASSINGS = [(point, passing) for point in POINTS for passing in (1, 2, 9)] + [("frame_read", passing) for passing in range(1, 41)]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon with a keeper."""
    with daemon_in(tmp_path / "broker", keeper=True) as running:
        yield running


def lives(daemon: Daemon) -> int:
    """The number of daemons that followed a killed one."""
    return daemon.log_text().count("life ")


def use_everything(writer: Client, reader: Client) -> None:
    """Puts, gets, replaces, drops and withdraws, waited and unwaited, by the socket and by the queue."""
    for i in range(24):  # more calls than precede the queue
        writer.ask(f"put a {4096 * (1 + i % 3)} {i} replace")
        reader.ask(f"get a {i}")
        if i % 4 == 3:
            reader.ask("check")
            reader.ask("drop")
    writer.ask("put large 33554432 7")  # an arena of its own
    reader.ask("get large 7")
    writer.ask("storm late 4096 3 40")  # unwaited
    writer.ask("flush")
    reader.ask("get late/39 3")
    reader.ask("check")
    for name in ("a", "large"):
        writer.ask(f"withdraw {name}")
    for i in range(40):  # the storm has withdrawn most of them
        with contextlib.suppress(Refused):
            writer.ask(f"withdraw late/{i}")
    with pytest.raises(Refused, match="NOT_FOUND"):
        reader.ask("get a 23")
    reader.ask("check")  # leased bytes stay
    reader.ask("drop")


@pytest.mark.parametrize(("point", "passing"), PASSINGS)
def test_a_kill_at_any_step_is_not_noticed(tmp_path: Path, point: str, passing: int) -> None:
    """Fault 10: SIGKILL at each step of each request, at its first, second and ninth passing."""
    once = tmp_path / "once"
    armed = {"ARRAYBRIDGE_FAILPOINT": f"{point}:kill_once={passing}:{once}"}
    with daemon_in(tmp_path / "broker", keeper=True, environment=armed) as daemon:
        ledger = Ledger(daemon)
        writer, reader = daemon.client(), daemon.client()
        use_everything(writer, reader)
        few = point in ("lifeline_stored", "catalogue_stored", "hazard_page_stored", "queue_stored") and passing > 1
        assert once.exists() or few or (point in ("arena_recorded", "arena_stored", "lease_recorded") and passing == 9), (
            "the point was never passed"
        )
        if once.exists():
            assert lives(daemon) == 1, daemon.log_text()
        eventually("no dropped lease is kept", lambda: daemon.stats()["leases"] == 0)
        writer.leave()
        reader.leave()
        ledger.settle()


def test_shares_leases_and_sessions_stay(kept: Daemon) -> None:
    """Names, bytes, leases and sessions are the same after a kill; a client that died during the outage ends."""
    ledger = Ledger(kept)
    writer, reader, dying = kept.client(), kept.client(), kept.client()
    writer.ask("put a 65536 1")
    for client in (reader, dying):
        client.ask("get a 1")
    before = kept.stats()
    with outage(kept):
        reader.ask("check")
        dying.kill()
        kept.clients.remove(dying)
    reader.ask("get a 1")
    after = eventually("the dead client's session ended", lambda: (now := kept.stats())["sessions"] == before["sessions"] - 1 and now)
    assert after["charged_bytes"] == before["charged_bytes"]
    assert "took over 1 shares, 3 sessions" in kept.log_text(), "the dead client's session is not taken over"
    writer.ask("put a 65536 2 replace")
    reader.ask("get a 2")
    reader.ask("check")
    reader.ask("drop")
    writer.ask("withdraw a")
    writer.leave()
    reader.leave()
    ledger.settle()


def test_what_ends_by_itself_ends_without_a_call(kept: Daemon) -> None:
    """A lifetime, and the memory of clients that died during the outage, while nobody does anything."""
    writer, dying = kept.client(), kept.client()
    writer.ask("put a 65536 1 lifetime 1500")
    dying.ask("put b 4096 2")
    dying.ask("withdraw b")
    with outage(kept):
        for client in (writer, dying, kept.warden):  # no session is left to give anything back
            client.kill()
        kept.clients.clear()
    kept.warden = Client(kept.directory, "warden")
    eventually("the dead client's arena is given back", lambda: kept.stats()["arenas"] <= 1)
    eventually("the lifetime is over", lambda: kept.stats()["allocated_bytes"] == 0)


def test_reads_need_no_daemon(kept: Daemon) -> None:
    """A share that is in the catalogue is found, held and released while no daemon runs."""
    writer, reader = kept.client(), kept.client()
    writer.ask("put a 65536 1")
    for _ in range(30):
        reader.ask("get a 1")
        reader.ask("drop")
    with outage(kept):
        for _ in range(100):
            reader.ask("get a 1")
            reader.ask("check")
            reader.ask("drop")
        writer.tell("put a 65536 2 replace")
        time.sleep(0.1)
    writer.answer()
    reader.ask("get a 2")


def test_a_waiting_get_goes_on_waiting(kept: Daemon) -> None:
    writer, reader = kept.client(), kept.client()
    writer.ask("stats")
    reader.tell("get coming 5 wait 60000")
    eventually("it waits", lambda: kept.stats()["waiting"] == 1)
    for _ in range(3):
        kept.kill()
        eventually("it waits again", lambda: kept.stats()["waiting"] == 1)
    writer.ask("put coming 4096 5")
    reader.answer()


def test_a_storm_of_kills_under_load(tmp_path: Path) -> None:
    """Fault 11: readers check every byte all the time, and the generations of a writer grow with each publish."""
    print(f"seed {SEED}, {LIVES} lives")
    chance = random.Random(SEED)
    with daemon_in(tmp_path / "broker", keeper=True) as daemon:
        ledger = Ledger(daemon)
        writers, readers = [daemon.client() for _ in range(2)], [daemon.client() for _ in range(2)]
        for i, writer in enumerate(writers):
            writer.ask(f"put w{i} 4096 1")
        stop = threading.Event()
        rounds = [0, 0, 0, 0]
        failed: list[str] = []

        def write(number: int) -> None:
            generation = 0
            while not stop.is_set():
                rounds[number] += 1
                size = random.choice((4096, 65536, 1 << 20))
                answer = writers[number].ask(f"put w{number} {size} 1 replace").split()
                assert int(answer[0]) > generation, answer
                generation = int(answer[0])

        def read(number: int) -> None:
            while not stop.is_set():
                rounds[2 + number] += 1
                readers[number].ask(f"get w{random.randrange(2)} 1")
                if rounds[2 + number] % 3 == 0:
                    readers[number].ask("check")
                    readers[number].ask("drop")

        def guarded(work: object, number: int) -> None:
            try:
                work(number)  # type: ignore[operator]
            except Exception as error:
                failed.append(f"{work.__name__} {number}: {error!r}")  # type: ignore[attr-defined]

        threads = [threading.Thread(target=guarded, args=(work, i)) for work in (write, read) for i in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(LIVES):
            time.sleep(chance.expovariate(10))
            daemon.kill()
            if failed:
                break
        before = list(rounds)
        eventually("all go on", lambda: failed or all(now > then for now, then in zip(rounds, before, strict=True)))
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed, f"{failed}\n{daemon.log_text()[-3000:]}"
        assert "lost 0 shares; 0 damaged" in daemon.log_text()
        for reader in readers:
            reader.ask("drop")
        for i, writer in enumerate(writers):
            writer.ask(f"withdraw w{i}")
        for client in writers + readers:
            client.leave()
        ledger.settle()


def test_an_orderly_end_of_the_keeper_frees_everything(tmp_path: Path) -> None:
    """SIGTERM to the keeper is a stop: nothing is kept."""
    with daemon_in(tmp_path / "broker", keeper=True) as daemon:
        daemon.client().ask("put a 65536 1")
    with daemon_in(tmp_path / "broker", keeper=True) as daemon:
        with pytest.raises(Refused, match="NOT_FOUND"):
            daemon.client().ask("get a 1")


@pytest.mark.skipif(not SIMULATED_CUDA.exists(), reason="the simulated driver is not built")
@pytest.mark.parametrize("kind", ["cuda_vmm", "cuda_ipc"])
def test_memory_of_a_gpu_lives_by_its_descriptor(tmp_path: Path, kind: str) -> None:
    """Memory that is shared as a descriptor is taken over; what the driver frees with its process is lost, by name."""
    memory = Memory(kind, tmp_path / "machine")
    with daemon_in(tmp_path / "broker", keeper=True, memory=memory) as daemon:
        ledger = Ledger(daemon)
        writer, reader = daemon.client(), daemon.client()
        writer.ask("put a 65536 1")
        reader.ask("get a 1")
        allocated = daemon.stats()["allocated_bytes"]
        assert allocated > 0
        for _ in range(3):
            daemon.kill()
            if kind == "cuda_ipc":
                break
            assert daemon.stats()["allocated_bytes"] == allocated
            reader.ask("check")
            late = daemon.client()
            late.ask("get a 1")
            late.ask("check")
            late.leave()
            daemon.clients.remove(late)
        daemon.stats()  # the next daemon has told all clients
        if kind == "cuda_ipc":
            with pytest.raises(Refused, match="NOT_FOUND"):
                reader.ask("get a 1")
            assert "lost: share 'a' of namespace 'default': cuda_ipc memory ends with the daemon" in daemon.log_text()
        reader.ask("drop")
        writer.ask("put a 65536 2 replace")
        reader.ask("get a 2")
        reader.ask("drop")
        writer.ask("withdraw a")
        writer.leave()
        reader.leave()
        eventually("every byte is back", lambda: daemon.stats()["allocated_bytes"] == 0)
        if kind == "cuda_vmm":
            ledger.settle()


@pytest.mark.skipif(not SIMULATED_CUDA.exists(), reason="the simulated driver is not built")
def test_a_put_allocates_anew_what_a_daemon_has_lost(tmp_path: Path) -> None:
    """Its client hears of the loss from the answer: it has not read yet that another daemon took over."""
    with daemon_in(tmp_path / "broker", keeper=True, memory=Memory("cuda_ipc", tmp_path / "machine")) as daemon:
        writer = daemon.client(prefix=["env", "ARRAYBRIDGE_FAILPOINT=takeover_unheard:error", "FAULT_CLIENT_BY_CALLS=1"])
        reader = daemon.client()
        writer.ask("place 4096")
        writer.ask("open frames send")
        reader.ask("open frames receive")
        for _ in range(3):
            for sends in (False, True):
                put = "send_held frames 1" if sends else "put a 4096 1 replace held"
                writer.ask(put)
                daemon.kill()
                daemon.stats()  # the next daemon serves
                writer.ask(put)
                reader.ask("receive frames 5000" if sends else "get a 1")
                reader.ask("drop")


STRIDED = """
import sys
import arraybridge, numpy as np
from arraybridge.broker import placing
from fakes import frameworks, gpu

fill, turn = placing.fill, iter(sys.stdin)

def slow(*arguments):
    fill(*arguments)
    print("filled", flush=True)
    next(turn)

gpu.start()
frameworks.install()
placing.fill = slow
values = np.arange(12, dtype="f4").reshape(3, 4)
array = frameworks.ARRAYS["cupy"].of(values, (32, 8))
with arraybridge.Broker(sys.argv[1], start="never") as broker, broker.channel("frames") as frames:
    frames.open("receiver")
    broker.put(array, "a", replace=True)
    got = broker.get("a", "cupy")
    frames.send(array)
    for got in got, frames.receive("cupy", timeout=10):
        assert (got.values() == values).all()
"""


@pytest.mark.skipif(not SIMULATED_CUDA.exists(), reason="the simulated driver is not built")
def test_python_copies_anew_what_a_daemon_has_lost(tmp_path: Path) -> None:
    """A strided array of a GPU is copied by its framework, into memory that ends before it is published."""
    memory = Memory("cuda_ipc", tmp_path / "machine")
    with daemon_in(tmp_path / "broker", keeper=True, memory=memory) as daemon:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib/libcuda.so.1").symlink_to(SIMULATED_CUDA)
        machine = memory.machine(None)
        env = {
            **os.environ, **machine, "SIMULATED_CUDA": "guest;" + machine["SIMULATED_CUDA"],
            "LD_LIBRARY_PATH": str(tmp_path / "lib"), "PYTHONPATH": str(ROOT / "tests/python"),
        }  # fmt: skip
        program = subprocess.Popen(
            [sys.executable, "-c", STRIDED, str(tmp_path / "broker")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        )  # fmt: skip
        with program:
            assert program.stdin is not None and program.stdout is not None
            for _ in ("put", "send"):
                for kills in (True, False):
                    assert program.stdout.readline() == "filled\n"
                    if kills:
                        daemon.kill()
                        daemon.stats()  # the next daemon serves
                    program.stdin.write("go on\n")
                    program.stdin.flush()
        assert program.returncode == 0


@pytest.mark.skipif(not SIMULATED_CUDA.exists(), reason="the simulated driver is not built")
def test_a_name_of_lost_memory_is_not_found_without_a_call(tmp_path: Path) -> None:
    """Each daemon loses all that its namespace had, and with it the namespace; its catalogue is mapped by the reader."""
    with daemon_in(tmp_path / "broker", keeper=True, memory=Memory("cuda_ipc", tmp_path / "machine")) as daemon:
        writer, reader = daemon.client(), daemon.client()

        def put(seed: int) -> None:
            try:
                writer.ask(f"put a 65536 {seed} replace")
            except Refused as refusal:  # the arena in which it was placed was lost meanwhile
                assert "make the array again" in str(refusal)
                writer.ask(f"put a 65536 {seed} replace")

        for turn in range(6):
            put(3 * turn)
            reader.ask(f"get a {3 * turn}")
            put(3 * turn + 1)
            daemon.kill()
            put(3 * turn + 2)
            reader.ask(f"get a {3 * turn + 2}")
            reader.ask("drop")


@pytest.mark.skipif(not SIMULATED_CUDA.exists(), reason="the simulated driver is not built")
def test_memory_of_a_gpu_whose_maker_died_meanwhile_is_given_back(tmp_path: Path) -> None:
    """No living process is known to have it; an end of a channel keeps the dead maker's session for a moment."""
    with daemon_in(tmp_path / "broker", keeper=True, memory=Memory("cuda_vmm", tmp_path / "machine")) as daemon:
        maker, reader = daemon.client(), daemon.client()
        maker.ask("open c send")
        maker.ask("put a 65536 1")
        reader.ask("stats")
        with outage(daemon):
            maker.kill()
            daemon.clients.remove(maker)
        reader.ask("get a 1")
        reader.ask("drop")
        reader.ask("withdraw a")
        eventually("every byte is back", lambda: daemon.stats()["allocated_bytes"] == 0)
        reader.leave()
