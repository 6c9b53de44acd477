# SPDX-License-Identifier: Apache-2.0
"""The Brokers of this process; an unpickled Share finds its Broker here. Does not connect."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from arraybridge.broker.fork_lock import lock_of

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

_brokers: weakref.WeakSet[Broker] = weakref.WeakSet()
_made_here: dict[tuple[str, str], Broker] = {}
_lock = lock_of(globals(), threading.Lock)


def remember(broker: Broker) -> None:
    """Registers a Broker for broker_at."""
    with _lock:
        _brokers.add(broker)


def broker_at(address: str, namespace: str, make: Callable[[], Broker]) -> Broker:
    """A Broker at this address and namespace: an existing one of this process, or one that `make` makes and that is
    registered.
    """
    with _lock:
        for broker in _brokers:
            if broker.namespace == namespace and broker.is_at(address):
                return broker
        known = _made_here.get((address, namespace))
    if known is not None:
        return known
    made = make()
    with _lock:
        return _made_here.setdefault((address, namespace), made)
