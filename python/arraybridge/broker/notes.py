"""Notes are what a client says of a share for those who trace it: by which route its bytes came to be, or to be read, and
why they were copied. Short texts; nobody but people reads them.
"""

from __future__ import annotations

from typing import Final

from arraybridge.planner import Plan

BYTES_MAX: Final = 64  # as brokers take them


def cut(text: str) -> str:
    """As much of it as a note may have."""
    return text.encode()[:BYTES_MAX].decode(errors="ignore")


def of_plan(chosen: Plan) -> str:
    """How a share was read: "torch hand_over", "torch place: dtype: narrowed from float64 to float32"."""
    reason = f": {chosen.reasons[0]}" if chosen.reasons else ""
    return cut(f"{chosen.target} {chosen.route}{reason}")


def of_put(framework: str, born_there: bool, sealed: bool) -> str:
    """How a share's bytes came into broker memory."""
    if born_there:
        return cut(f"{framework} identity: born in broker memory")
    return cut(f"{framework} place: {'sealed' if sealed else 'not in broker memory'}")
