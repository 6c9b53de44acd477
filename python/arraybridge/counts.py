# SPDX-License-Identifier: Apache-2.0
"""Counts this process's conversions by source, target and route, with the reasons against a cheaper route."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Final, NamedTuple

from arraybridge import _core, autograph
from arraybridge.planner import Plan, Route

KINDS_MAX: Final = 4096  # a bound; frameworks, routes and reasons are few, so it is not reached


class ConversionCount(NamedTuple):
    """One kind of conversion, and its totals: a row of `conversion_counts`.

    Attributes:
        source, target: names of frameworks; "share" for an array of the broker.
        route: "identity", "hand_over" or "place", as in `Plan`.
        reasons: the codes of the reasons against a cheaper route: "layout", "read_only".
        conversions: how many arrays were converted so.
        copies: how often their bytes were copied.
        copied_bytes: bytes of all copies together.

    Example:
        >>> tensor = arraybridge.convert(np.ones(3), "torch", copy=True)
        >>> any(row.source == "numpy" and row.copied_bytes >= 24 for row in arraybridge.conversion_counts())
        True
    """

    source: str
    target: str
    route: Route
    reasons: tuple[str, ...]
    conversions: int
    copies: int
    copied_bytes: int


_Kind = tuple[str, str, Route, tuple[str, ...]]


class _Tally:
    """The totals of one kind. `free` counts conversions without a copy, without a lock, for the fast path."""

    __slots__ = ("conversions", "copied_bytes", "copies", "free")

    def __init__(self) -> None:
        self.conversions = self.copies = self.copied_bytes = 0  # counted by `Counts.note`
        self.free: Final = _core.PlanCount()


class Counts:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tallies: dict[_Kind, _Tally] = {}

    def after_fork(self) -> None:
        """Called in a child after fork: replaces the lock, which a thread of the parent may have held, and drops the
        parent's counts.
        """
        self._lock = threading.Lock()
        for tally in self._tallies.values():
            tally.copies = tally.copied_bytes = 0
            tally.conversions = -tally.free.value

    def note(self, chosen: Plan) -> None:
        """Counts one conversion by this plan."""
        with self._lock:
            tally = self._of(chosen)
            tally.conversions += 1
            tally.copies += chosen.copies
            tally.copied_bytes += chosen.copied_bytes

    def free(self, chosen: Plan) -> _core.PlanCount:
        """The count to add each conversion by this plan to. REQUIRES: the plan copies nothing."""
        with self._lock:
            return self._of(chosen).free

    def all(self) -> list[ConversionCount]:
        """All kinds, in the order of their first conversion."""
        with self._lock:
            return [
                ConversionCount(*kind, tally.conversions + tally.free.value, tally.copies, tally.copied_bytes)
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


# One per process, because convert_memory has no object to keep it.
of_process: Final = Counts()
os.register_at_fork(after_in_child=of_process.after_fork)


def conversion_counts() -> list[ConversionCount]:
    """The conversions of this process by `convert_memory`, `Broker.convert` and `Broker.get`, each kind once: source,
    target, route, and the codes of the reasons against a cheaper route; the number of conversions, copies and copied
    bytes. Each array of a tree counts. Refused conversions do not.

    Example:
        >>> tensor = arraybridge.convert(np.ones(3), "torch")
        >>> {row.route for row in arraybridge.conversion_counts()} <= {"identity", "hand_over", "place"}
        True
    """
    return of_process.all()


class Metric(NamedTuple):
    """A counter of Prometheus. As a string: its lines in the text format.

    Attributes:
        name: of the counter; ends with "_total".
        help: one sentence.
        samples: pairs of labels, a dict, and the value.

    Example:
        >>> print(arraybridge.Metric("seen_total", "Arrays seen.", [({"target": "torch"}, 3)]), end="")
        # HELP seen_total Arrays seen.
        # TYPE seen_total counter
        seen_total{target="torch"} 3
    """

    name: str
    help: str
    samples: list[tuple[dict[str, str], int]]

    def __str__(self) -> str:
        lines = [f"# HELP {self.name} {self.help}", f"# TYPE {self.name} counter"]
        for labels, value in self.samples:
            pairs = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
            lines.append(f"{self.name}{{{pairs}}} {value}")
        return "\n".join(lines) + "\n"


def metrics() -> list[Metric]:
    """`conversion_counts` as metrics for monitoring: the counters by framework, which the broker does not have. The
    application exports them: `"".join(map(str, arraybridge.metrics()))` is a page for Prometheus.

    `arraybridge_client_conversions_total` by source, target and route; `arraybridge_client_copied_bytes_total` by
    source and target; `arraybridge_client_copy_reasons_total` by the code of a reason: conversions that copied for that
    reason.

    Example:
        >>> [metric.name for metric in arraybridge.metrics()][0]
        'arraybridge_client_conversions_total'
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
        _metric("copy_reasons", "Conversions that copied, by reason.", ("reason",), reasons),
    ]


def _metric(name: str, help: str, labels: tuple[str, ...], sums: Counter[tuple[str, ...]]) -> Metric:
    samples = [(dict(zip(labels, key, strict=True)), value) for key, value in sums.items()]
    return Metric(f"arraybridge_client_{name}_total", help, samples)


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def totals() -> dict[str, int]:
    """The totals, for `Broker.stats`."""
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
