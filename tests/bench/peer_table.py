# SPDX-License-Identifier: Apache-2.0
"""Works that peers from PyPI do beside ours: one row per work and peer, whose floor is our figure; our own rows stand
beside a handwritten ring. A peer that does not run is named with the reason.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pipelines
import runtimes
import stage

Found = dict[str, dict[str, dict[str, Any]]]  # by peer, then by work

OURS, BY_HAND = "arraybridge", "ring"
HEAVY = ("tensordict", "vineyard")  # with Ray and dora: only in full runs
WORKS = {
    "hop_4kib": ("4 KiB to another process, one way", "us"),
    "frame": ("a frame of 6.2 MB, filled in place, to another process, which reads it", "us"),
    "frame_copied": ("the same, filled in private memory first", "us"),
    "relay_3_hops_6mib": ("the same over two relays, filled in place where that is possible", "us"),
    "attach_1gib": ("the first attach of 1 GiB, of 8 readers", "us"),
    "kill": ("files in shared memory once a producer and its reader were killed", "files"),
}

# Rows of our channels: the work, and the peer that is the floor.
CHANNELS = {
    "channel_4kib_python": ("hop_4kib", "iceoryx2"),
    "channel_6mib": ("frame_copied", BY_HAND),
    "channel_6mib_in_place": ("frame", "iceoryx2"),
}


def collect(cpus: str, rounds: int, daemon: Path, whole: bool) -> Found:
    found: Found = {}
    absent: list[str] = []
    for name in stage.TRANSPORTS:
        if whole or name not in HEAVY:
            found[name], why = pipelines.measured(name, cpus, rounds, daemon, whole)
            absent += why
    for name, run in (("dora", runtimes.dora), ("ray", runtimes.ray)) if whole else ():
        found[name], why = run(cpus, rounds)
        absent += why
    for reason in absent:
        print(f"left out: {reason}", file=sys.stderr)
    return found


def rows(one: Found, two: Found | None) -> list[dict[str, Any]]:
    made = []
    for work, (text, unit) in WORKS.items():
        for name, found in one.items():
            if work not in found:
                continue
            own = dict(found[work])
            value = own.pop("left", None) if work == "kill" else own.pop("value")
            floor = one.get(BY_HAND if name == OURS else OURS, {}).get(work, {}).get("value")
            row = {
                "id": f"{work}_{name}",
                "work": f"{name}: {text}",
                "value": value if value is None else round(value, 2),
                "unit": unit,
                "floor": floor and round(floor, 2),
                "ratio": floor and round(value / floor, 3),
                "reach": "side by side",
                "peer": None,
                "peer_value": None,
                **own,
            }
            beside = {} if two is None else two.get(name, {}).get(work, {})
            if "value" in beside:
                row["two_cpus"] = {"value": round(beside["value"], 2)}
            made.append(row)
    return made


def channels(one: Found, two: Found | None) -> list[dict[str, Any]]:
    """Our own rows whose floor is a peer's figure of the same run."""
    made = []
    for row, (work, peer) in CHANNELS.items():
        ratios = []
        for found in (one, two or {}):
            own, beside = (found.get(name, {}).get(work, {}).get("value") for name in (OURS, peer))
            ratios.append(None if own is None or beside is None else (own, beside, round(own / beside, 3)))
        text, unit = WORKS[work]
        value, floor, ratio = ratios[0] or (None, None, None)
        result = {
            "id": row,
            "work": f"{text}, from Python; floor: {peer}",
            "value": value and round(value, 2),
            "unit": unit,
            "floor": floor and round(floor, 2),
            "ratio": ratio,
            "reach": f"<= 1.0 x {peer}",
            "peer": peer,
            "peer_value": floor and round(floor, 2),
            "note": f"{peer} is not there",
        }
        if ratios[1] is not None:
            value, floor, ratio = ratios[1]
            result["two_cpus"] = {"value": round(value, 2), "floor": round(floor, 2), "ratio": ratio}
        made.append(result)
    return made


def table(made: list[dict[str, Any]]) -> str:
    """One line per peer: one CPU / two CPUs."""
    by_id = {row["id"]: row for row in made}
    names = list(dict.fromkeys(row["id"].rsplit("_", 1)[1] for row in made))

    def cell(work: str, name: str) -> str:
        row = by_id.get(f"{work}_{name}")
        if row is None:
            return "–"
        if work == "kill":
            kept = "kept" if row["intact"] else "CHANGED"
            left = "" if row["value"] is None else f"; {row['value']} files left"
            return f"{kept}; a reader writes: {row['reader_writes']}; the next producer {row['next_producer']}{left}"
        beside = f" / {row['two_cpus']['value']:,.0f}" if "two_cpus" in row else ""
        pss = f" ({row['pss_mib']:.0f} MiB)" if "pss_mib" in row else ""
        return f"{row['value']:,.1f}{beside}{pss}" if work == "hop_4kib" else f"{row['value']:,.0f}{beside}{pss}"

    heads = [
        "4 KiB",
        "6.2 MB in place",
        "6.2 MB copied in",
        "over two relays",
        "attach 1 GiB (PSS of one of 8)",
        "a killed producer's frame",
    ]
    lines = ["| microseconds | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(cell(work, name) for work in WORKS) + " |" for name in names]
    return "\n".join(lines)
