# SPDX-License-Identifier: Apache-2.0
"""What a history of calls may look like: a model of names, generations, leases, charges and channels (fault 39).

A history is a list of calls, each with the time at which it was sent and the time at which its answer came. A call whose client
was killed has no answer: it may have happened or not. The broker serves each call at one moment between the two times. The
functions here yield one sentence for each thing that no order of such moments explains.

A name is a register. Its generations increase, so the order of its puts is known, and a few rules decide what a full search
would: `present` and `absent` say whether there is a moment in a call at which the name can have, or lack, a share.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass
class Call:
    """A call of a client. `answer` has the numbers of an answer that is OK; `error` is its code otherwise."""

    client: int
    verb: str  # put, replace, look, withdraw, send, receive
    name: str
    begin: float
    seed: int = 0  # of a put, replace or send: unique in the history
    end: float = math.inf
    answer: tuple[int, ...] | None = None
    error: str = ""

    @property
    def unknown(self) -> bool:
        """Its client was killed, or its connection ended, before the answer."""
        return self.answer is None and self.error in ("", "UNAVAILABLE", "DEADLINE_EXCEEDED")

    def __str__(self) -> str:
        outcome = self.error or self.answer or "no answer"
        return f"{self.verb} {self.name} {self.seed or ''} of client {self.client} in [{self.begin:.4f}, {self.end:.4f}]: {outcome}"


class Name:
    """All calls with one name."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self.calls = sorted(calls, key=lambda call: call.begin)
        self.puts = [call for call in self.calls if call.verb in ("put", "replace") and (call.answer or call.unknown)]
        self.looks = [call for call in self.calls if call.verb == "look" and call.answer]
        self.withdrawals = [call for call in self.calls if call.verb == "withdraw" and (call.answer is not None or call.unknown)]
        self.by_seed = {put.seed: put for put in self.puts}
        # A put without an answer has the generation that a reader saw.
        self.generation = {put.seed: put.answer[0] for put in self.puts if put.answer}
        for look in self.looks:
            assert look.answer
            self.generation.setdefault(look.answer[1], look.answer[0])

    def completed(self, put: Call) -> float:
        """The latest moment at which the put happened: its answer, or the first answer that shows it."""
        seen = [look.end for look in self.looks if look.answer and look.answer[1] == put.seed]
        return min([put.end, *seen])

    def absent(self, call: Call) -> bool:
        """Is there a moment in the call at which the name may have no share?"""
        before = [put for put in self.puts if self.completed(put) < call.begin]
        if not before:
            return True
        last = max(put.begin for put in before)  # each put before it has happened, too
        return any(gone.end > last and gone.begin < call.end and gone is not call for gone in self.withdrawals)

    def present(self, call: Call) -> bool:
        """Is there a moment in the call at which the name may have a share?"""
        return any(put.begin < call.end and not self.withdrawn(put, call.begin) for put in self.puts if put is not call)

    def withdrawn(self, put: Call, at: float) -> bool:
        """Is this generation certainly gone at that time?"""
        done = self.completed(put)
        gone = (call for call in self.withdrawals if call.answer is not None)
        return any(done < call.begin and call.end < at for call in gone)

    def findings(self) -> Iterator[str]:
        yield from self._order_of_puts()
        for look in self.looks:
            yield from self._explains(look)
        for call in self.calls:
            if call.error == "NOT_FOUND" and not self.absent(call):
                yield f"the name has a share all the time of {call}"
            if call.verb == "put" and call.answer and not self.absent(call):
                yield f"the name is taken all the time of {call}"
            if call.error == "ALREADY_EXISTS" and not self.present(call):
                yield f"the name has no share at any time of {call}"
            if call.verb == "withdraw" and call.answer is not None and not self.present(call):
                yield f"there is nothing to withdraw at any time of {call}"
        withdrawn = sum(call.answer is not None for call in self.withdrawals)
        if withdrawn > len(self.puts):
            yield f"{withdrawn} withdrawals of {len(self.puts)} shares"

    def _order_of_puts(self) -> Iterator[str]:
        known = sorted((put for put in self.puts if put.seed in self.generation), key=lambda put: self.generation[put.seed])
        for earlier, later in zip(known, known[1:], strict=False):
            if self.generation[earlier.seed] == self.generation[later.seed]:
                yield f"the generation of {earlier} is also that of {later}"
        latest = -math.inf  # the begin of any put of a greater generation
        for put in reversed(known):
            if self.completed(put) < put.begin:
                yield f"it was seen before it began: {put}"
        for put in known:
            if self.completed(put) < latest:
                yield f"it ended before a put of a smaller generation began: {put}"
            latest = max(latest, put.begin)

    def _explains(self, look: Call) -> Iterator[str]:
        assert look.answer
        generation, seed = look.answer
        put = self.by_seed.get(seed)
        if put is None:
            yield f"its bytes were never put: {look}"
            return
        if self.generation[seed] != generation:
            yield f"the bytes are those of generation {self.generation[seed]}: {look}"
        if put.begin > look.end:
            yield f"{put} is later than {look}"
        newer = (each for each in self.puts if self.generation.get(each.seed, 0) > generation)
        if any(self.completed(each) < look.begin for each in newer):
            yield f"a newer generation had been there: {look}"
        if self.withdrawn(put, look.begin):
            yield f"it had been withdrawn: {look}"


def names(history: list[Call]) -> Iterator[str]:
    by_name: dict[str, list[Call]] = defaultdict(list)
    for call in history:
        if call.verb in ("put", "replace", "look", "withdraw"):
            by_name[call.name].append(call)
    for calls in by_name.values():
        yield from Name(calls).findings()


def channel(history: list[Call]) -> Iterator[str]:
    """A queue: each share is received once, in the order of sending. A share may be lost only with a receiver that died."""
    sends = {call.seed: call for call in history if call.verb == "send" and (call.answer is not None or call.unknown)}
    received = [call for call in history if call.verb == "receive" and call.answer]
    sequence = {}
    for call in received:
        assert call.answer
        number, _, seed = call.answer
        if seed not in sends:
            yield f"it was never sent: {call}"
        elif sends[seed].begin > call.end:
            yield f"{sends[seed]} is later than {call}"
        sequence[seed] = number
    for seed, times in Counter(call.answer[2] for call in received if call.answer).items():
        if times > 1:
            yield f"{sends.get(seed, seed)} was received {times} times"
    for number, times in Counter(sequence.values()).items():
        if times > 1:
            yield f"sequence {number} occurs {times} times"
    yield from _overtaken([sends[seed] for seed in sorted(sequence, key=sequence.__getitem__) if seed in sends], "sent")
    yield from _overtaken(sorted(received, key=lambda call: call.answer[0] if call.answer else 0), "received")
    lost = [call for seed, call in sends.items() if call.answer is not None and seed not in sequence]
    excuses = sum(call.verb == "receive" and call.end == math.inf for call in history)
    if len(lost) > excuses:
        yield f"{len(lost)} shares are lost, with {excuses} receivers that died while they received: {lost[0]}"


def _overtaken(in_sequence: list[Call], what: str) -> Iterator[str]:
    latest: Call | None = None
    for call in in_sequence:
        if latest is not None and call.end < latest.begin:
            yield f"{call} was {what} before {latest}, but its sequence is greater"
        latest = call if latest is None or call.begin > latest.begin else latest


def counts(held: dict[int, list[int]], stats: dict[str, int]) -> Iterator[str]:
    """The broker's numbers while no call runs. `held`: the generations that each living client holds.

    A client may hold what it has acquired several times by one lease or one hazard slot.
    """
    least, most = sum(len(set(each)) for each in held.values()), sum(map(len, held.values()))
    if not least <= stats["leases"] + stats["hazard_slots"] <= most:
        yield f"{stats['leases']} leases and {stats['hazard_slots']} hazard slots, but the clients hold {least} shares, {most} times"
    if stats["charged_bytes"] != stats["allocated_bytes"]:
        yield f"{stats['charged_bytes']} bytes are charged and {stats['allocated_bytes']} allocated"
    if stats["waiting"] or stats["tickets"]:
        yield f"{stats['waiting']} requests wait and {stats['tickets']} tickets are valid"


def findings(history: list[Call]) -> list[str]:
    return [*names(history), *channel(history)]
