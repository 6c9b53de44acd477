# SPDX-License-Identifier: Apache-2.0
"""A way is the route of an array's bytes inside this process, if the caller chooses it:

"dlpack": the memory is shared, or copied on its own device; not through the host.
"host": the values are copied into memory of the host, and from there to the target.
"serialize": the values become bytes (`to_bytes`), which keep shape and dtype, and an array is made of those.

Only torch can copy a tensor that requires grad with its gradient: for such a tensor "host" and "serialize" let torch
copy it, and the plan reports it. Pure functions. A way that is not possible is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal, get_args

from arraybridge import planner
from arraybridge.arguments import check_word
from arraybridge.arrays import devices
from arraybridge.errors import UnsupportedArray, UnsupportedDtype, ZeroCopyUnavailable
from arraybridge.planner import ASKED_FOR, CODES, COPY_REQUESTED, DETACHED, OPAQUE_PREFIXES, Caps, Description, Plan

Way = Literal["dlpack", "host", "serialize"]
WAYS: Final = get_args(Way)
# Memory of the host without a framework, from which bytes are made.
MEMORY: Final = Caps("bytes", "compact_c", 1, 64, "kept", False, frozenset(CODES), opaque=True, settled=True)
_KEPT: Final = ("different_device: ", "dtype: narrowed")
_OVER_THE_HOST: Final = ("d2h", "h2d", "d2h+h2d")


def check_way(via: object) -> None:
    """Raises:
    InvalidRequest: it is neither None nor a way.
    """
    if via is not None:
        check_word(via, "via", WAYS)


def planned(via: Way | None, source: Description, target: Caps, copy: bool | None = None, **wishes: Any) -> Plan:
    """planner.plan with this way; None: with the cheapest one.

    Raises:
        UnsupportedArray, UnsupportedDtype: the way is not possible. ZeroCopyUnavailable: `copy=False`, and the way
            copies. Other errors of planner.plan.
    """
    if via is None:
        return planner.plan(source, target, copy=copy, **wishes)
    return _PLANNERS[via](source, target, copy, wishes)


def _by_dlpack(source: Description, target: Caps, copy: bool | None, wishes: dict[str, Any]) -> Plan:
    chosen = planner.plan(source, target, copy=copy, **wishes)
    if chosen.via in _OVER_THE_HOST:
        reason = f'the bytes would go through the host ({chosen.via}: {"; ".join(chosen.reasons)}): use via="host"'
        raise UnsupportedArray(source.framework, target.name, "dlpack", reason)
    if chosen.route != "identity" and (chosen.dtype in target.by_value or chosen.dtype.startswith(OPAQUE_PREFIXES)):
        name = "structured dtypes" if chosen.dtype.startswith("struct:") else chosen.dtype
        reason = f'DLPack cannot pass {name} to {target.name}: use via="host" or via="serialize"'
        raise UnsupportedDtype(source.framework, target.name, "dlpack", reason)
    return replace(chosen, via="dlpack")


def _by_host(source: Description, target: Caps, copy: bool | None, wishes: dict[str, Any]) -> Plan:
    chosen = planner.plan(source, target, copy=True, **wishes)
    if _keeps_gradient(source, target):
        return _by_its_framework("host", chosen, copy)
    if {source.device[0], devices.of(chosen.device)[0]} != {devices.CUDA}:
        return _with_way("host", chosen, copy, chosen.copies, chosen.copied_bytes)
    to_host = planner.plan(source, MEMORY, copy=True, device="cpu")
    # Narrowed on the host, then uploaded.
    more = 1 + (chosen.dtype != source.dtype)
    nbytes = to_host.copied_bytes + more * _nbytes(source, chosen.dtype)
    return _with_way("host", chosen, copy, to_host.copies + more, nbytes)


def _by_bytes(source: Description, target: Caps, copy: bool | None, wishes: dict[str, Any]) -> Plan:
    chosen = planner.plan(source, target, copy=True, **wishes)
    if _keeps_gradient(source, target):
        return _by_its_framework("serialize", chosen, copy)
    to_host = planner.plan(source, MEMORY, device="cpu")
    # One copy into the bytes and one out of them; a narrowing is the copy on the host and needs another one to a GPU.
    narrowed_first = chosen.dtype != source.dtype and devices.of(chosen.device) != devices.HOST
    out = 1 + narrowed_first
    nbytes = to_host.copied_bytes + source.nbytes + out * _nbytes(source, chosen.dtype)
    return _with_way("serialize", chosen, copy, to_host.copies + 1 + out, nbytes)


_PLANNERS: Final[dict[str, Callable[[Description, Caps, bool | None, dict[str, Any]], Plan]]] = {
    "dlpack": _by_dlpack,
    "host": _by_host,
    "serialize": _by_bytes,
}


def _with_way(via: Way, chosen: Plan, copy: bool | None, copies: int, nbytes: int) -> Plan:
    """The plan with this way, which copies.

    Raises:
        ZeroCopyUnavailable: copying is forbidden.
    """
    reason = f'way: via="{via}" copies {ASKED_FOR}'
    return _copied(via, replace(chosen, via=via, copies=copies, copied_bytes=nbytes), copy, reason)


def _keeps_gradient(source: Description, target: Caps) -> bool:
    """True if the source's framework makes the copy itself (`Source.duplicate`), because no other copy keeps the
    gradient.
    """
    return source.framework == target.name and DETACHED in source.notes


def _by_its_framework(via: Way, chosen: Plan, copy: bool | None) -> Plan:
    """The plan of a copy by the source's framework, although another way was requested.

    Raises:
        ZeroCopyUnavailable: copying is forbidden.
    """
    return _copied(via, chosen, copy, f'way: {chosen.target} itself copies what requires grad, not via="{via}" {ASKED_FOR}')


def _copied(via: Way, chosen: Plan, copy: bool | None, reason: str) -> Plan:
    """The plan with the reason for its copy.

    Raises:
        ZeroCopyUnavailable: copying is forbidden.
    """
    # The reasons against sharing no longer apply.
    why = tuple(each for each in chosen.reasons if each.startswith(_KEPT) or (copy and each == COPY_REQUESTED))
    made = replace(chosen, reasons=(*why, reason))
    if copy is False:
        raise ZeroCopyUnavailable(chosen.source, chosen.target, via, reason, made)
    return made


def _nbytes(source: Description, dtype: str) -> int:
    return source.nbytes if dtype == source.dtype else source.nbytes * CODES[dtype][1] // source.code[1]
