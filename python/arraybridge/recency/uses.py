# SPDX-License-Identifier: Apache-2.0
"""Uses: when each result of a group was last used. A hit makes no call, so the broker does not know of it: each process notes
its own uses, and publishes them as a small share at most once a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from typing import TYPE_CHECKING, Final

from arraybridge import autograph
from arraybridge.errors import BrokerError

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

EVERY_S: Final = 1.0
_LIFETIME_S: Final = 3600.0  # of what a process has published, after its latest use
_NAMES_MAX: Final = 4096  # of one process


class Uses:
    """The uses of the shares whose names begin with `prefix`, which ends with a slash. Threads and forked children may call it."""

    def __init__(self, prefix: str) -> None:
        self._prefix, self.shared = prefix, f"uses/{prefix}"
        self._used: dict[str, float] = {}  # seconds of the host's monotonic clock, by what follows the prefix; the latest use last
        self._published, self._process, self._own_name = 0.0, 0, ""

    def note(self, broker: Broker, name: str) -> None:
        """This process uses the share now."""
        key, now = name.removeprefix(self._prefix), time.monotonic()
        self._used.pop(key, None)
        self._used[key] = now
        if now - self._published >= EVERY_S:
            self._published = now
            self._publish(broker)

    def last(self, broker: Broker) -> dict[str, float]:
        """When each share was last used, by name, on the host's monotonic clock. Uses that another process noted less than a
        second before its latest one may be missing.
        """
        found = dict(self._used)
        for listed in broker.list(self.shared):
            with contextlib.suppress(BrokerError, ValueError):  # withdrawn meanwhile, or not ours
                for key, used in json.loads(broker.get(listed.share).tobytes()).items():
                    found[key] = max(used, found.get(key, 0.0))
        return {self._prefix + key: used for key, used in found.items()}

    def _publish(self, broker: Broker) -> None:
        if self._process != os.getpid():
            self._process, self._own_name = os.getpid(), f"{self.shared}{secrets.token_hex(8)}"
        for key in list(self._used)[:-_NAMES_MAX]:
            self._used.pop(key, None)
        text = json.dumps(dict(self._used)).encode()
        with contextlib.suppress(BrokerError):  # no room: other processes know less
            broker.put(memoryview(text), self._own_name, replace=True, lifetime=_LIFETIME_S)


autograph.mark_module(__name__)
