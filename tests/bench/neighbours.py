# SPDX-License-Identifier: Apache-2.0
"""The rows neighbour_*: the effect of one user's attack on the calls of another (tests/faults/neighbour.py), at full
size.

The value of a row is the victim's 99th percentile in milliseconds during the attack and after the attackers' death. Its
floor is the limit: 5 ms, or ten times the victim's own idle percentile of the same run. Further columns: the worst
call, the longest time without a sign of life to the service manager (reach: 1 s), and the time in which memory and
descriptors return to their baseline after the attackers' death (reach: 5 s).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))
from neighbour import ATTACKS, DOORS, Attack, Outcome, attacked, neighbourhood, p99

FLOOR_MS, TIMES_IDLE = 5.0, 10.0
REACH = "p99 <= max(5 ms, 10 x idle p99), gap <= 1 s, baseline within 5 s, at the gRPC door <= 200 MiB"
UNLISTED = {13}  # a law of the fault tests, not a row


def why_not() -> str:
    """Empty: they can run here."""
    if os.geteuid() != 0:
        return "only root can run processes of other users"
    return "" if shutil.which("setpriv") else "setpriv is not installed"


def doors_of(attack: Attack) -> tuple[str, ...]:
    """Those at which the victim's calls are measured."""
    return DOORS if attack.program == "grpc_attacker.py" else DOORS[:1]


def row_of(attack: Attack, door: str, outcome: Outcome) -> dict[str, Any]:
    value, idle = p99(outcome.calls), p99(outcome.idle)
    floor = max(FLOOR_MS, TIMES_IDLE * idle)
    return {
        "id": f"neighbour_{attack.stage}" + ("" if door == DOORS[0] else f"_{door}"),
        "work": f"another user's calls at the {door} beside attack {attack.number}, p99",
        "value": round(value, 2),
        "unit": "ms",
        "floor": round(floor, 2),
        "ratio": round(value / floor, 3),
        "reach": REACH,
        "peer": None,
        "peer_value": None,
        "idle_p99_ms": round(idle, 3),
        "worst_ms": round(outcome.worst, 1),
        "gap_s": round(outcome.gap_s, 2),
        "settled_s": outcome.settled_s if outcome.settled_s is None else round(outcome.settled_s, 2),
        "kib": [outcome.kib_before, outcome.kib_during, outcome.kib_after],
        "descriptors": [outcome.descriptors_before, outcome.descriptors_during, outcome.descriptors_after],
        "refused": len(outcome.refusals),
    }


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    if why := why_not():
        print(f"left out: neighbours: {why}", file=sys.stderr)
        return []
    found = []
    attacks = [attack for attack in ATTACKS.values() if attack.number not in UNLISTED]
    for attack in attacks if full else attacks[:1]:  # tests/faults makes all of them in this form
        client = build / "tests/bench/bench_neighbour_client"
        for door in doors_of(attack):
            with neighbourhood(build / "daemon/arraybridged", client=client) as place:
                found.append(row_of(attack, door, attacked(place, attack, full=full, door=door)))
    return found


def summary(found: list[dict[str, Any]]) -> str:
    lines = ["| id | idle p99 ms | p99 ms | worst ms | gap s | back s | KiB before, during, after | descriptors | refused |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for row in found:
        kib, descriptors = (" ".join(map(str, row[key])) for key in ("kib", "descriptors"))
        back = "never" if row["settled_s"] is None else row["settled_s"]
        cells = [f"`{row['id']}`", row["idle_p99_ms"], row["value"], row["worst_ms"], row["gap_s"], back, kib, descriptors]
        lines.append("| " + " | ".join(map(str, [*cells, row["refused"]])) + " |")
    return "\n".join(lines)


def main() -> None:
    """neighbours.py BUILD [--full]: only these rows."""
    found = rows(Path(sys.argv[1]), "--full" in sys.argv[2:])
    print(summary(found))


if __name__ == "__main__":
    main()
