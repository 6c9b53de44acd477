# SPDX-License-Identifier: Apache-2.0
"""Histories of eight client processes under kills and stops, explained by a model: fault 39.

Each client is driven by a thread that draws its calls from a seed, records when each was sent and answered, and at random kills
or stops the process in the middle of a call. model.py then explains all answers, or says which it cannot.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import model
import pytest
from harness import Client, Daemon, Ledger, Refused, daemon_in, eventually
from model import Call

LONG = bool(os.environ.get("ARRAYBRIDGE_LONG"))
SEED = int(os.environ.get("ARRAYBRIDGE_SEED", random.SystemRandom().randrange(1 << 32)))
CLIENTS, NAMES, PHASES = 8, 3, 3
CALLS = 300 if LONG else 150  # of each client in each phase
HELD_MAX = 12
SEEDS = [SEED + offset for offset in range(6 if LONG else 1)]


class Actor:
    """A client process that makes random calls, and its successor after each death."""

    def __init__(self, number: int, daemon: Daemon, seeds: Iterator[int], seed: int) -> None:
        self.number, self.daemon, self.seeds = number, daemon, seeds
        self.chance = random.Random(f"{seed} {number}")
        self.history: list[Call] = []
        self.held: list[int] = []  # generations
        self.deaths = 0
        self.begin()

    def begin(self) -> None:
        self.client = self.daemon.client("model")
        self.held = []
        self.client.ask("open frames send" if self.number % 2 else "open frames receive")

    def end(self) -> None:
        self.client.kill()
        self.daemon.clients.remove(self.client)

    def play(self, calls: int) -> None:
        for _ in range(calls):
            self.step()

    def step(self) -> None:
        name = f"n{self.chance.randrange(NAMES)}"
        verb = self.chance.choices(["put", "replace", "look", "withdraw", "channel", "drop", "place"], [3, 5, 10, 3, 6, 2, 1])[0]
        if verb == "drop" or len(self.held) >= HELD_MAX:
            self.client.ask("check")  # what it holds has its bytes
            self.client.ask("drop")
            self.held = []
        elif verb == "place":
            self.client.ask(f"place {8 * self.chance.randrange(1, 5000)}")
        elif verb == "channel" and self.number % 2:
            self.call("send", "frames", lambda seed: f"send frames {self.size()} {seed} 50")
        elif verb == "channel":
            self.call("receive", "frames", lambda _: "receive frames 20")
        elif verb in ("put", "replace"):
            suffix = " replace" if verb == "replace" else ""
            self.call(verb, name, lambda seed: f"put {name} {self.size()} {seed} marked{suffix}")
        else:
            self.call(verb, name, lambda _: f"{verb} {name}")

    def size(self) -> int:
        return 8 * self.chance.randrange(1, 3000)

    def call(self, verb: str, name: str, line: Callable[[int], str]) -> None:
        seed = next(self.seeds) if verb in ("put", "replace", "send") else 0
        call = Call(self.number, verb, name, time.monotonic(), seed)
        self.history.append(call)
        self.client.tell(line(seed))
        fate = self.chance.random()
        if fate < 0.02:
            self.end()
            self.deaths += 1
            self.begin()
            return
        if fate < 0.05:
            self.client.signal(signal.SIGSTOP)
            self.daemon_serves_others()
            self.client.signal(signal.SIGCONT)
        try:
            answer = self.client.answer()
            call.answer = tuple(map(int, answer.split()[:3])) if verb in ("look", "receive") else tuple(map(int, answer.split()[:1]))
            self.held += call.answer[:1] if verb == "look" else ()
        except Refused as refused:
            call.error = refused.code
            assert "is wrong" not in refused.message, f"{refused}: {call}"
        call.end = time.monotonic()

    def daemon_serves_others(self) -> None:
        """Time in which other clients go on; a call of a new one takes about as long as several of theirs."""
        other = Client(self.daemon.directory, "elsewhere")
        other.ask("stats")
        other.kill()


def together(actors: list[Actor], calls: int) -> None:
    """All actors at once; the first failure of one is raised."""
    failures: list[BaseException] = []

    def play(actor: Actor) -> None:
        try:
            actor.play(calls)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=play, args=(actor,)) for actor in actors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def drained(actor: Actor) -> None:
    """Receives what is left in the channel, whose senders have closed. The loss of each sender is told once, in between."""
    actor.chance = random.Random(0)  # whose first numbers end no client
    told, until = "", time.monotonic() + 60
    while told in ("", "ABORTED"):
        assert time.monotonic() < until, actor.history[-3:]
        call = Call(actor.number, "receive", "frames", time.monotonic())
        actor.history.append(call)
        actor.client.tell("receive frames 5000")
        try:
            call.answer = tuple(map(int, actor.client.answer().split()[:3]))
        except Refused as refused:
            told = call.error = refused.code
        call.end = time.monotonic()
    assert told == "OUT_OF_RANGE", "the end of the stream"


def recorded(daemon: Daemon, ledger: Ledger, seed: int) -> tuple[list[Call], int]:
    """A history, and the number of clients that were killed in it; the broker's numbers are right between its phases."""
    seeds = itertools.count(1)
    actors = [Actor(number, daemon, seeds, seed) for number in range(CLIENTS)]
    for _ in range(PHASES):
        together(actors, CALLS)
        for actor in actors:
            actor.client.ask("flush")
        held = {actor.number: actor.held for actor in actors}

        def wrong(held: dict[int, list[int]] = held) -> list[str]:
            return list(model.counts(held, daemon.stats()))

        eventually(f"the model's numbers (ARRAYBRIDGE_SEED={seed}): {held}, {daemon.stats()}", lambda: not wrong())
    for actor in actors:
        if actor.number % 2:
            actor.client.ask("close frames send")
    drained(actors[0])
    for name in range(NAMES):
        actors[0].call("look", f"n{name}", lambda _, name=name: f"look n{name}")
    for actor in actors:
        if actor.number % 2 == 0:  # in order, so that the channel awaits no other receiver
            actor.client.ask("close frames receive")
        actor.end()
    cleaner = daemon.client("model")
    for name in cleaner.ask("list").split():
        cleaner.ask(f"withdraw {name}")
    cleaner.leave()
    ledger.settle()
    return [call for actor in actors for call in actor.history], sum(actor.deaths for actor in actors)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: "" if len(SEEDS) == 1 else str(SEEDS.index(seed)))
def test_every_history_is_explained(tmp_path: Path, seed: int) -> None:
    """Fault 39: names, generations, leases, charges and streams of channels are those of the model."""
    print(f"ARRAYBRIDGE_SEED={seed}")
    with daemon_in(tmp_path / "broker") as daemon:
        history, deaths = recorded(daemon, Ledger(daemon), seed)
    assert deaths > 0
    done = {verb: sum(call.verb == verb and call.answer is not None for call in history) for verb in {call.verb for call in history}}
    assert all(done.values()) and len(done) == 6, done
    assert model.findings(history) == [], f"ARRAYBRIDGE_SEED={seed}"


def put(seed: int, begin: float, end: float, generation: int, name: str = "a") -> Call:
    return Call(0, "replace", name, begin, seed, end, (generation,))


def look(begin: float, end: float, *answer: int) -> Call:
    return Call(1, "look", "a", begin, 0, end, answer or None, "" if answer else "NOT_FOUND")


def withdraw(begin: float, end: float) -> Call:
    return Call(2, "withdraw", "a", begin, 0, end, ())


def send(seed: int, begin: float, end: float) -> Call:
    return Call(3, "send", "c", begin, seed, end, ())


def receive(begin: float, end: float, *answer: int) -> Call:
    return Call(4, "receive", "c", begin, 0, end, answer or None)


UNEXPLAINED = {
    "a stale generation": ([put(1, 0, 1, 5), put(2, 2, 3, 6), look(4, 5, 5, 1)], "newer generation"),
    "bytes of another share": ([put(1, 0, 1, 5), put(2, 2, 3, 6), look(4, 5, 6, 1)], "bytes are those"),
    "bytes that were never put": ([put(1, 0, 1, 5), look(2, 3, 5, 9)], "never put"),
    "a share that was withdrawn": ([put(1, 0, 1, 5), withdraw(2, 3), look(4, 5, 5, 1)], "withdrawn"),
    "a name that is not found": ([put(1, 0, 1, 5), look(2, 3)], "has a share"),
    "a share before its time": ([look(0, 1, 5, 1), put(1, 2, 3, 5)], "later than|before it began"),
    "two shares of a generation": ([put(1, 0, 1, 5), put(2, 2, 3, 5)], "also that of"),
    "generations that go back": ([put(1, 0, 1, 6), put(2, 2, 3, 5)], "smaller generation"),
    "a second withdrawal": ([put(1, 0, 1, 5), withdraw(2, 3), withdraw(4, 5)], "nothing to withdraw"),
    "a share that is received twice": ([send(1, 0, 1), receive(2, 3, 1, 1, 1), receive(4, 5, 2, 1, 1)], "2 times"),
    "a share that is lost": ([send(1, 0, 1), send(2, 2, 3), receive(4, 5, 2, 1, 2)], "lost"),
    "shares in another order": ([send(1, 0, 1), send(2, 2, 3), receive(4, 5, 1, 1, 2), receive(6, 7, 2, 1, 1)], "sequence is greater"),
    "a share that was not sent": ([receive(0, 1, 1, 1, 8)], "never sent"),
}
EXPLAINED = {
    "calls at the same time": [put(1, 0, 9, 5), put(2, 0, 9, 6), look(1, 2, 5, 1), look(3, 4, 6, 2)],
    "a put whose client died": [Call(0, "replace", "a", 0, 1), look(5, 6, 3, 1), look(7, 8, 3, 1)],
    "a withdrawal whose client died": [put(1, 0, 1, 5), Call(0, "withdraw", "a", 2), look(3, 4, 5, 1), look(5, 6)],
    "a receiver that died with a share": [send(1, 0, 1), receive(2, float("inf"))],
}


@pytest.mark.parametrize("what", UNEXPLAINED)
def test_the_model_finds(what: str) -> None:
    """Otherwise the test above would show nothing."""
    history, finding = UNEXPLAINED[what]
    found = model.findings([dataclasses.replace(call) for call in history])
    assert any(part in each for each in found for part in finding.split("|")), found


@pytest.mark.parametrize("what", EXPLAINED)
def test_the_model_explains(what: str) -> None:
    assert model.findings(EXPLAINED[what]) == []
