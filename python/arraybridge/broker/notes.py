# SPDX-License-Identifier: Apache-2.0
"""Notes are texts of clients that are shown when a share is traced: the route by which its bytes were written or read,
and the reasons for copies. Short; only people read them.
"""

from __future__ import annotations

from typing import Final

from arraybridge.planner import Plan

BYTES_MAX: Final = 64  # the broker's limit


def cut(text: str) -> str:
    """The text, cut to the limit."""
    return text.encode()[:BYTES_MAX].decode(errors="ignore")


def of_plan(chosen: Plan) -> str:
    """How a share was read: "torch hand_over", "torch place: dtype: narrowed from float64 to float32"."""
    reason = f": {chosen.reasons[0]}" if chosen.reasons else ""
    return cut(f"{chosen.target} {chosen.route}{reason}")


def of_copy(framework: str, sealed: bool, rearranged: str = "") -> str:
    """How a share's bytes were written to broker memory. `rearranged`: why its parts are not those of the array."""
    reason = rearranged or ("sealed" if sealed else "not in memory of this namespace")
    return cut(f"{framework} place: {reason}")


def of_forward(framework: str) -> str:
    """How bytes of a share were published once more."""
    return cut(f"{framework} identity: bytes of a share")
