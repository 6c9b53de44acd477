# SPDX-License-Identifier: Apache-2.0
"""Outcomes reports how results were made: to the caller, the log and, once per kind, as a warning."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Final, cast

from arraybridge import _core, adapters, callers, counts, planner
from arraybridge.arrays import devices
from arraybridge.errors import BrokerError, CopyWarning, raised_by
from arraybridge.planner import Converted, Plan

_log = logging.getLogger("arraybridge")


def seen(target: adapters.Adapter, view: _core.View, chosen: Plan) -> Any:
    """The target's array over the View's memory.

    Raises:
        MemoryConversionError: the framework refused; chained to its own error.
    """
    try:
        if chosen.route == "place" and not chosen.on_shared_memory:
            return cast(adapters.Uploader, target).upload(view, devices.of(chosen.device))
        return target.view(view)
    except BrokerError:
        raise
    except Exception as error:
        raise raised_by(error, chosen.source, chosen.target, chosen.route) from error


class Outcomes:
    """The reports of a Broker: each thread's latest plan, and the warnings given. Thread-safe."""

    def __init__(self) -> None:
        self.note: Final = _core.PlanNote(threading.local(), _log)  # remembers and logs a plan
        # Bounded, because frameworks and reasons are few.
        self._warned: set[tuple[str, str, str]] = set()

    @property
    def latest(self) -> Plan | None:
        """This thread's latest plan."""
        return self.note.latest

    def reported(self, result: Any, plans: Sequence[Plan], copy: bool | None, explain: bool) -> Any:
        """The result, or Converted. Counts each plan. Warns of copies that were not requested."""
        for each in plans:
            counts.of_process.note(each)
        chosen = planner.combined(plans)
        self.note(chosen)
        if copy is None:
            self._warn(chosen)
        return Converted(result, chosen) if explain else result

    def _warn(self, chosen: Plan) -> None:
        if any(reason.startswith("no_foreign_memory") for reason in chosen.reasons):
            return  # the caller could not avoid it
        for reason in chosen.reasons:
            key = chosen.source, chosen.target, reason
            if key in self._warned or reason.endswith(("(allow_downcast=True)", planner.ASKED_FOR)):
                continue
            self._warned.add(key)
            text = f"{chosen.source} to {chosen.target} needed a copy. {reason}"
            callers.warn(text, CopyWarning)
