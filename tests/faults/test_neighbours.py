"""A user does not affect other users: attack programs of one user at full speed beside another user's ordinary calls.

The only limit on speed is that no call of the victim takes longer than WORST_MS. That is generous: these attacks once
delayed it by 7 to 58 s. The benchmark has the numbers (tests/bench/run, rows neighbour_*).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

import pytest
from harness import DAEMON
from neighbour import ATTACKS, DOORS, Attack, Neighbourhood, Outcome, attacked, go, neighbourhood, stage

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
