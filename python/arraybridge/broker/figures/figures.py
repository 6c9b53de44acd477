# SPDX-License-Identifier: Apache-2.0
"""Figures are what one server of a service publishes of its work: the metadata of a small share, at most once in a second.

The daemon knows who waits for a service, and for how long; only the servers know how long their answers took.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from arraybridge.errors import BrokerError

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

_EVERY_S: Final = 1.0
_LIFETIME_S: Final = 10.0  # of what a server has published that answers no more, or was killed
_TIMES: Final = 512  # the last answers, of which the percentiles are


class Figures:
    """Thread-safe."""

    def __init__(self, broker: Broker, service: str, server: str) -> None:
        self._broker = broker
        self._share: Final = f"service/{service}/figures/{server}"
        self._lock = threading.Lock()
        self._times_us: deque[int] = deque(maxlen=_TIMES)
        self._requests = self._failed = 0
        self._published_at = 0.0
        self._published_requests = 0

    def note(self, called_ns: int, failed: bool) -> None:
        """A request was answered that was called at this time of CLOCK_BOOTTIME."""
        with self._lock:
            self._requests += 1
            self._failed += failed
            self._times_us.append((time.clock_gettime_ns(time.CLOCK_BOOTTIME) - called_ns) // 1000)
            now = time.monotonic()
            if now - self._published_at < _EVERY_S:
                return
            text = self._text(now)
        with contextlib.suppress(BrokerError):  # nothing depends on them
            self._broker.put({}, self._share, replace=True, metadata=text.encode(), lifetime=_LIFETIME_S)

    def withdraw(self) -> None:
        """The server has ended."""
        if self._published_at:
            with contextlib.suppress(BrokerError):
                self._broker.withdraw(self._share)

    def _text(self, now: float) -> str:
        passed = min(now - self._published_at, _LIFETIME_S) if self._published_at else _EVERY_S
        rate = (self._requests - self._published_requests) / passed
        self._published_at, self._published_requests = now, self._requests
        times = sorted(self._times_us)
        p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
        return f"requests={self._requests} failed={self._failed} rate_milli={round(1000 * rate)} p50_us={p50} p99_us={p99}"
