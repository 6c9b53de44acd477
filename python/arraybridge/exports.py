# SPDX-License-Identifier: Apache-2.0
"""Exports: read-only memory and DLPack consumers that are not known.

Most consumers ignore the flag READ_ONLY. So a View that a user gets is protected: memory of a share is exported as a
copy-on-write mapping of its own, other memory as a copy, which is counted and reported. NumPy respects the flag, and
gets other memory as it is. `View.plain` is the same memory for an adapter, which knows its framework.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

from arraybridge import _core, callers, counts
from arraybridge.arrays import devices
from arraybridge.arrays.owners import owner_of
from arraybridge.errors import CopyWarning, ZeroCopyUnavailable
from arraybridge.planner import NAMES, Plan

REASONS: Final = {
    "read_only": "read_only: the consumer may write, and most consumers ignore DLPack's flag READ_ONLY",
    "alignment": "alignment: TensorFlow and JAX need an address that is a multiple of 64",
}
_log = logging.getLogger("arraybridge")
_tried: set[str] = set()  # contains "numpy" after it was verified
warned: set[tuple[str, str]] = set()  # reasons and devices, which are few


def protected(view: _core.View, source: Any = None, constant: bool = False) -> _core.View:
    """The same memory for unknown consumers. Writable memory is not changed.

    Args:
        source: the array that the View was made of, if it may lie in the memory of a share.
        constant: no process writes these bytes any more.
    """
    if not view.read_only:
        return view
    if "numpy" in sys.modules and not _tried:
        _tried.add("numpy")
        _core.heeds_read_only(sys.modules["numpy"].from_dlpack)
    owner = None if source is None else owner_of(source)
    if owner is None:
        return view.protected(constant=constant)
    return view.protected(constant=constant or not owner.may_change, origin=owner.share)


def report_copy(view: _core.View, copy: bool | None, code: str) -> None:
    """Called by a View before it copies for a consumer: counts, logs, and warns once.

    Args:
        code: of REASONS.

    Raises:
        ZeroCopyUnavailable: copy=False.
    """
    reason = REASONS[code]
    where = devices.named(view.device)
    dtype = view.dtype_name or NAMES.get(view.dtype_code, "")
    plan = Plan(
        source="view",
        target="dlpack",
        device=where,
        route="place",
        via="host" if view.device == devices.HOST else "d2d-copy",
        copies=1,
        copied_bytes=view.nbytes,
        zero_copy=False,
        dtype=dtype,
        reasons=(reason,),
    )
    if copy is False:
        raise ZeroCopyUnavailable("view", "dlpack", "asdlpack", reason, plan)
    counts.of_process.note(plan)
    _log.debug("%s", plan)
    if (code, where) not in warned:
        warned.add((code, where))
        callers.warn(f"view to dlpack needed a copy. {reason}", CopyWarning)
