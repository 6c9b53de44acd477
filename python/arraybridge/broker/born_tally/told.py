# SPDX-License-Identifier: Apache-2.0
"""A Told is a framework's use of GPU memory of the broker, whose counts the broker is told about once in a second. On the host
the extension's heap does so.
"""

from __future__ import annotations

import os
import threading
from typing import Final

from arraybridge import _core, autograph
from arraybridge.broker.born.frameworks import Missed, Scope

_EVERY_S: Final = 1.0
_Counts = tuple[int, int, dict[str, Missed], str]


class Told:
    """A `Scope` that passes its calls on to another one."""

    def __init__(self, scope: Scope, core: _core.Core, framework: str) -> None:
        self._scope, self._core, self._framework = scope, core, framework
        self._told: _Counts = (0, 0, {}, "")
        self._over = threading.Event()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="arraybridge-born", daemon=True)

    def enter(self) -> str | None:
        """As `Scope.enter`."""
        lack = self._scope.enter()
        if not lack:
            self._thread.start()
        return lack

    def leave(self) -> None:
        """As `Scope.leave`."""
        self._scope.leave()
        if os.getpid() != self._process:
            return  # the session is the parent's
        self._over.set()
        self._thread.join()
        self._tell()

    def counts(self) -> _Counts:
        """As `Scope.counts`."""
        return self._scope.counts()

    def _run(self) -> None:
        while not self._over.wait(_EVERY_S):
            self._tell()

    def _tell(self) -> None:
        now, before = self._scope.counts(), self._told
        missed = {reason: _since(numbers, before[2].get(reason, (0, 0))) for reason, numbers in now[2].items()}
        arrays, nbytes = _since(now[:2], before[:2])
        news = arrays or any(count for count, _ in missed.values())
        if news and _core.tell_born(self._core, self._framework, arrays, nbytes, missed):
            self._told = now


def _since(now: Missed, before: Missed) -> Missed:
    return now[0] - before[0], now[1] - before[1]


autograph.mark_module(__name__)
