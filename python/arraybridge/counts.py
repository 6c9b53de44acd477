"""Counts: how often this process converted what to what, by which route, and why not by a cheaper one."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

from arraybridge.planner import Plan, Route

KINDS_MAX: Final = 4096  # a plan knows few frameworks, routes and reasons: never seen


class ConversionCount(NamedTuple):
    """One kind of conversion, and what it came to so far."""

    source: str
    target: str
    route: Route
    reasons: tuple[str, ...]  # the codes of why no cheaper route was taken: "layout", "read_only"
    conversions: int
    copies: int
    copied_bytes: int


_Kind = tuple[str, str, Route, tuple[str, ...]]


class _Tally:
    """Of one kind. `free` is moved on by one for each conversion without a copy, thread-safe without a lock: the short way
    has no time for one."""

    __slots__ = ("_looked", "conversions", "copied_bytes", "copies", "free")

    def __init__(self) -> None:
        self.conversions = self.copies = self.copied_bytes = 0  # of `Counts.note`
        self.free: Iterator[int] = itertools.count()
        self._looked = 0

    def freely(self) -> int:
        """How far `free` was moved on. REQUIRES: one thread at a time."""
        found = next(self.free) - self._looked  # whoever looks moves it, too
        self._looked += 1
        return found


class Counts:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tallies: dict[_Kind, _Tally] = {}

    def after_fork(self) -> None:
        """In a child: a thread of the parent may have held the lock, and does not live here."""
        self._lock = threading.Lock()

    def note(self, chosen: Plan) -> None:
        """One conversion was done as planned."""
        with self._lock:
            tally = self._of(chosen)
            tally.conversions += 1
            tally.copies += chosen.copies
            tally.copied_bytes += chosen.copied_bytes

    def free(self, chosen: Plan) -> Iterator[int]:
        """To be moved on by `next` for each conversion done as planned. REQUIRES: the plan copies nothing."""
        with self._lock:
            return self._of(chosen).free

    def all(self) -> list[ConversionCount]:
        """In the order of their first conversion."""
        with self._lock:
            return [
                ConversionCount(*kind, tally.conversions + tally.freely(), tally.copies, tally.copied_bytes)
                for kind, tally in self._tallies.items()
            ]

    def _of(self, chosen: Plan) -> _Tally:
        codes = tuple(reason.partition(":")[0] for reason in chosen.reasons)
        kind = chosen.source, chosen.target, chosen.route, codes
        found = self._tallies.get(kind)
        if found is None:
            if len(self._tallies) >= KINDS_MAX:
                kind = "others", "others", chosen.route, ()
            found = self._tallies.setdefault(kind, _Tally())
        return found


# Of the process: convert_memory has nobody else to remember it.
of_process: Final = Counts()
os.register_at_fork(after_in_child=of_process.after_fork)


def conversion_counts() -> list[ConversionCount]:
    """What this process has converted so far by `convert_memory`, `Broker.convert` and `Broker.get`, each kind once:
    from what, to what, by which route, with the codes of the reasons why by no cheaper one; how often, with how many
    copies of how many bytes. Arrays of a tree count one by one. What was refused counts nowhere.
    """
    return of_process.all()


def totals() -> dict[str, int]:
    """The sums, as `Broker.stats` tells them."""
    found = conversion_counts()
    sums = {"conversions": 0, "copies": 0, "copied_bytes": 0}
    routes = dict.fromkeys(("identity", "hand_over", "place"), 0)
    for each in found:
        sums["conversions"] += each.conversions
        sums["copies"] += each.copies
        sums["copied_bytes"] += each.copied_bytes
        routes[each.route] += each.conversions
    return {**sums, **routes}
