"""The Brokers of this process, of which a Share that was pickled finds one again. Connects nowhere."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

_brokers: weakref.WeakSet[Broker] = weakref.WeakSet()
_made_here: dict[tuple[str, str], Broker] = {}
_lock = threading.Lock()


def _after_fork() -> None:
    # A thread of the parent may have held it; it does not live here.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def remember(broker: Broker) -> None:
    """From now on broker_at may answer with this one."""
    with _lock:
        _brokers.add(broker)


def broker_at(address: str, namespace: str, make: Callable[[], Broker]) -> Broker:
    """A Broker at this address and namespace: one that this process has already, or one that `make` makes and that is shared
    from now on."""
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
