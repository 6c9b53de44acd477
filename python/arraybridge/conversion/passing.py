# SPDX-License-Identifier: Apache-2.0
"""Passing: the first leg of a planned route, before the one copy to the target."""

from __future__ import annotations

from dataclasses import replace

from arraybridge import adapters
from arraybridge.arrays import devices
from arraybridge.conversion.byte_format import bytes_of, view_of
from arraybridge.conversion.source import Source, described, on_host, plain
from arraybridge.conversion.ways import MEMORY
from arraybridge.planner import Plan


def passed(source: Source, chosen: Plan) -> Source:
    """The array after the first leg of its planned route: as bytes, or in private memory of the host if it returns to a
    GPU; otherwise the array itself.
    """
    if chosen.via == "serialize":
        view = view_of(bytes_of(source))
    elif chosen.via == "host" and {source.description.device[0], devices.of(chosen.device)[0]} == {devices.CUDA}:
        view = on_host(plain(source), replace(chosen, dtype=source.description.dtype), MEMORY)
    else:
        return source
    return Source(view, adapters.protocols(), described(view, source.description.framework), source.target)
