"""Counts: how often this process converted what to what, by which route, and why not by a cheaper one."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from arraybridge import autograph
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
        """In a child: a thread of the parent may have held the lock, and does not live here; what it counted is the parent's."""
        self._lock = threading.Lock()
        for tally in self._tallies.values():
            tally.copies = tally.copied_bytes = 0
            tally.conversions = -tally.freely()

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


class Metric(NamedTuple):
    """A counter as Prometheus knows them. As a string: its lines in the text format."""

    name: str
    help: str
    samples: list[tuple[dict[str, str], int]]  # labels, value

    def __str__(self) -> str:
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} counter"]
        for labels, value in self.samples:
            said = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
            lines.append(f"{self.name}{{{said}}} {value}")
        return "\n".join(lines) + "\n"


def metrics() -> list[Metric]:
    """`conversion_counts` for whoever watches this process: all that has a framework's name, of which the broker knows none.
    Handing them on is the application's business: `"".join(map(str, arraybridge.metrics()))` is a page for Prometheus.

    `arraybridge_client_conversions_total` by source, target and route; `arraybridge_client_copied_bytes_total` by source
    and target; `arraybridge_client_copy_reasons_total` by the code of a reason: conversions that copied, and had it.
    """
    found = conversion_counts()
    conversions, copied, reasons = (Counter[tuple[str, ...]]() for _ in range(3))
    for each in found:
        conversions[each.source, each.target, each.route] += each.conversions
        copied[each.source, each.target] += each.copied_bytes
        for reason in set(each.reasons) if each.copies else ():
            reasons[(reason,)] += each.conversions
    return [
        _metric("conversions", "Arrays that this process converted.", ("source", "target", "route"), conversions),
        _metric("copied_bytes", "Bytes that conversions copied.", ("source", "target"), copied),
        _metric("copy_reasons", "Conversions that copied, by why.", ("reason",), reasons),
    ]


def _metric(name: str, help: str, labels: tuple[str, ...], sums: Counter[tuple[str, ...]]) -> Metric:
    samples = [(dict(zip(labels, key, strict=True)), value) for key, value in sums.items()]
    return Metric(f"arraybridge_client_{name}_total", help, samples)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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


autograph.mark_module(__name__)
