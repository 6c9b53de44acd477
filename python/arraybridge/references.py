"""What a Share or a Broker turns into when it was pickled: a Broker of the process that reads it. Connects nowhere."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arraybridge.broker import Broker
    from arraybridge.discovery import Start

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


def broker_at(address: str, namespace: str) -> Broker:
    """A Broker at this address and namespace: one that this process has already, or one that is shared from now on."""
    with _lock:
        for broker in _brokers:
            if broker.namespace == namespace and broker.is_at(address):
                return broker
        known = _made_here.get((address, namespace))
    if known is not None:
        return known
    made = remade(address, namespace, "never", 10.0)
    with _lock:
        return _made_here.setdefault((address, namespace), made)


def remade(address: str | None, namespace: str, start: Start, timeout_s: float, roads: bool = True) -> Broker:
    """A Broker of these arguments."""
    from arraybridge.broker import Broker

    return Broker(address, namespace=namespace, start=start, timeout_s=timeout_s, roads=roads)
