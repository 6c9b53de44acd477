# SPDX-License-Identifier: Apache-2.0
"""A user does not affect other users: attack programs of one user at full speed beside another user's ordinary calls.

The only limit on speed is that no call of the victim takes longer than WORST_MS. That is generous: these attacks once
delayed it by 7 to 58 s. The benchmark has the numbers (tests/bench/run, rows neighbour_*).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ACQUIRE, ALLOCATE, DAEMON, MAPPED, OPEN_SESSION, PUBLISH, RawLifeline, Refused, daemon_in
from holder import Holder
from neighbour import ATTACKER, ATTACKS, DOORS, VICTIM, Attack, Neighbourhood, Outcome, attacked, go, neighbourhood, stage

WORST_MS = 5000.0
MISDESCRIBED = Attack(10, "misdescribed", {})
AT_LIFELINE = {stage: attack for stage, attack in ATTACKS.items() if attack.program == "attacker.py"}
AT_GRPC = {stage: attack for stage, attack in ATTACKS.items() if attack.program == "grpc_attacker.py"}
ENDS_S = 30.0  # from SIGTERM, with a drain timeout of 1 s; it once took 158 s
GRPC_KIB_MAX = 200 << 10  # of the daemon's memory, whatever one user does at the gRPC door


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run processes of other users")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")


@pytest.fixture
def place() -> Iterator[Neighbourhood]:
    with neighbourhood(DAEMON) as running:
        yield running


def check(outcome: Outcome) -> None:
    assert not outcome.refusals, outcome.refusals[:3]
    assert outcome.settled_s is not None, f"memory or descriptors were not released: {outcome.line()}"


def survive(place: Neighbourhood, attack: Attack, door: str) -> Outcome:
    outcome = attacked(place, attack, full=False, door=door, seconds=1.5, idle_s=0.5)
    check(outcome)
    if outcome.worst >= WORST_MS or not outcome.attacked:  # a stalled machine has the same effect, but hardly twice
        with neighbourhood(DAEMON) as another:
            outcome = attacked(another, attack, full=False, door=door, seconds=1.5, idle_s=0.5)
        check(outcome)
    assert outcome.attacked, "the victim made no call"
    assert outcome.worst < WORST_MS, outcome.line()
    return outcome


@pytest.mark.parametrize("attack", AT_LIFELINE.values(), ids=lambda attack: f"{attack.number}-{attack.stage}")
def test_an_attack_affects_only_its_user(place: Neighbourhood, attack: Attack) -> None:
    survive(place, attack, "lifeline")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("attack", AT_GRPC.values(), ids=lambda attack: f"{attack.number}-{attack.stage}")
def test_an_attack_at_the_grpc_door_affects_only_its_user(place: Neighbourhood, attack: Attack, door: str) -> None:
    outcome = survive(place, attack, door)
    assert outcome.kib_during <= GRPC_KIB_MAX, outcome.line()


@pytest.mark.parametrize("attack", AT_GRPC.values(), ids=lambda attack: f"{attack.number}-{attack.stage}")
def test_the_daemon_ends_in_spite_of_an_attack(attack: Attack) -> None:
    with neighbourhood(DAEMON, "--drain-timeout", "1s") as place:
        process = place.attacker(attack, full=False)
        stage(process, attack)
        go(process, attack)
        time.sleep(3.0)  # of attack
        place.daemon.terminate()
        assert place.daemon.wait(ENDS_S) == 0


def test_arrays_that_no_reader_can_read_are_refused(place: Neighbourhood) -> None:
    """Attack 10: arrays of 264 bits or of type 300. Broker and clients use the same check."""
    got = stage(place.attacker(MISDESCRIBED, False), MISDESCRIBED)
    assert got == {"refused": {"ELEMENT_TYPE": 3}}


def test_waiting_requests_are_charged_to_their_user(place: Neighbourhood) -> None:
    """Attack 7: waiting requests and their bytes are counted over all sessions of their user."""
    attack = ATTACKS["waits"]
    got = stage(place.attacker(attack, False), attack)
    assert got["refused"].get("QUEUED_BYTES", 0) > 0, got
    assert got["waiting"] + sum(got["refused"].values()) == attack.full["sessions"] * attack.full["requests"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """That every user may enter."""
    with tempfile.TemporaryDirectory(prefix="arraybridge-neighbours-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def open_to_all(directory: Path) -> None:
    directory.chmod(0o755)
    (directory / "lifeline.sock").chmod(0o666)


def line_of(uid: int, directory: Path, messages: Any) -> RawLifeline:
    os.seteuid(uid)  # the daemon asks the kernel who has connected
    try:
        line = RawLifeline(directory, messages)
    finally:
        os.seteuid(0)
    line.call(
        OPEN_SESSION, messages.OpenSessionRequest(protocol_min=1, protocol_max=1, client="raw", resumes=True), messages.OpenSessionResponse
    )
    return line


def arena_of(line: RawLifeline, messages: Any) -> Any:
    request = messages.AllocateRequest(namespace="default", device={"type": 1}, size=4096, timeout_ms=5000)
    answer, descriptors = line.call(ALLOCATE, request, messages.AllocateResponse)
    for descriptor in descriptors:
        os.close(descriptor)
    return answer.handle


def test_one_user_does_not_fill_the_store_of_descriptors(folder: Path, messages: Any) -> None:
    """8 sessions of the attacker allocate small arenas until they are refused, where 200 descriptors can be kept."""
    directory = folder / "run"
    command = [str(DAEMON), "--directory", str(directory), "--backend", "host", "--host-capacity", "64MiB", "--cache", "0"]
    holder = Holder(folder, command, entries_max=200)
    holder.start()
    open_to_all(directory)
    kept: list[RawLifeline] = []

    def fill() -> None:
        for _ in range(8):
            kept.append(line_of(ATTACKER, directory, messages))
            with pytest.raises(Refused, match="TOO_MANY_DESCRIPTORS.*gets no more of them than it leaves"):
                for _ in range(200):
                    arena_of(kept[-1], messages)

    def work() -> None:
        line = line_of(VICTIM, directory, messages)
        kept.append(line)
        arena = arena_of(line, messages)
        line.call(MAPPED, messages.MappedRequest(arena=arena.arena), messages.MappedResponse)
        spec = {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [256], "size": 256}
        request = messages.PublishRequest(
            namespace="default", name="frame", arena=arena.arena, arena_generation=arena.generation, size=256, specs={"arrays": [spec]}
        )
        line.call(PUBLISH, request, messages.PublishResponse)

    def read() -> None:
        line = line_of(VICTIM, directory, messages)
        kept.append(line)
        line.call(ACQUIRE, messages.AcquireRequest(namespace="default", shares=[{"name": "frame"}]), messages.AcquireResponse)

    try:
        holder.during(fill)
        stored = Counter(name[0] for name in holder.names() if "." not in name)  # a socket that listens has a dot
        assert 40 < stored["a"] <= 50 and stored["l"] == 8, stored  # half of the store is for sessions
        holder.during(work)
        holder.kill()
        holder.start()
        holder.during(read)  # it was kept
    finally:
        for line in kept:
            line.close()
        holder.close()


def test_a_member_who_may_only_read_does_not_stop_the_producer(folder: Path, messages: Any) -> None:
    """Three sessions of a user who may only read keep each frame that they get; another reader is served as before."""
    configuration = folder / "arraybridged.toml"
    configuration.write_text('[namespace.team]\nquota = "64MiB"\naccess = ["uid:0", "anyone:ro"]\n')
    directory = folder / "run"
    with daemon_in(directory, "--config", str(configuration), keeper=False) as daemon:
        open_to_all(directory)
        producer = daemon.client("team")
        producer.ask("put frame 1048576 0")
        attackers = [line_of(ATTACKER, directory, messages) for _ in range(3)]
        reader = daemon.client("team", prefix=["setpriv", f"--reuid={VICTIM}", "--clear-groups"])
        request = messages.AcquireRequest(namespace="team", shares=[{"name": "frame"}])
        refused = 0
        for frame in range(1, 150):
            producer.ask(f"put frame 1048576 {frame} replace")
            try:
                for descriptor in attackers[frame % 3].call(ACQUIRE, request, messages.AcquireResponse)[1]:
                    os.close(descriptor)
            except Refused as refusal:
                assert "PINNED_BYTES" in str(refusal)
                refused += 1
            reader.ask(f"get frame {frame}")  # and checks it
            if frame % 8 == 0:
                reader.ask("check")
                reader.ask("drop")
        assert refused > 100
        for line in attackers:
            line.close()


def test_a_reader_that_keeps_too_much_is_refused_and_reads_no_wrong_byte(folder: Path) -> None:
    """Cutting its session would let the producer write over arrays that the reader still has."""
    configuration = folder / "arraybridged.toml"
    configuration.write_text('[namespace.team]\nquota = "64MiB"\naccess = ["uid:0", "anyone:ro"]\n')
    with daemon_in(folder / "run", "--config", str(configuration), keeper=False) as daemon:
        open_to_all(daemon.directory)
        producer = daemon.client("team")
        reader = daemon.client("team", prefix=["setpriv", f"--reuid={VICTIM}", "--clear-groups"])
        got = 0
        for number in range(20):
            producer.ask(f"put frame 3145728 {number} replace")
            try:
                reader.ask(f"get frame {number}")
                got += 1
            except Refused as refusal:
                assert "PINNED_BYTES" in str(refusal) and "drop what was replaced, or copy it" in str(refusal)
        assert got == 10  # 30 MiB; the producer has the other half
        reader.ask("check")  # every word of what it has
        reader.ask("drop")
        reader.ask("get frame 19")
