# SPDX-License-Identifier: Apache-2.0
"""What tests read, or change, inside of this package because no public name shows it: each private name has one place here."""

from collections.abc import Hashable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import arraybridge
import arraybridge.multiprocessing as passing
from arraybridge import _core
from arraybridge.arrays import classes
from arraybridge.broker.delivery import Delivery


def delivery_of(broker: arraybridge.Broker) -> Delivery:
    """The part of a Broker that makes arrays of a framework."""
    return broker._delivery


def plans_of(broker: arraybridge.Broker) -> dict[Any, dict[Hashable, Any]]:
    """The plans that a Broker has decided: by the target, and by the form of the array."""
    return delivery_of(broker)._decided


def routes_of(broker: arraybridge.Broker) -> dict[Any, Any]:
    """The table of the short ways of `Broker.convert`."""
    return delivery_of(broker)._shortcuts._routes


def lock_of(channel: arraybridge.Channel) -> Any:
    """The lock that `Channel.close` takes."""
    return channel._lock


def prepare(channel: Any, *tables: Any) -> None:
    """Gives the extension's part of a Channel the tables of its fast ways."""
    channel._prepare(*tables)


def classes_known() -> int:
    """The number of classes whose framework is remembered."""
    return len(classes._known) + len(classes._lasting)


def arrays_given() -> int:
    """The number of promises of `arraybridge.multiprocessing.give` that no pickle has used yet."""
    return len(passing._given)


def reducers() -> dict[type, Any]:
    """The table of multiprocessing's pickler, by class: Python has a public way into it, and none out."""
    return ForkingPickler._extra_reducers  # type: ignore[attr-defined, no-any-return]


def raw_core(broker: arraybridge.Broker) -> _core.Core:
    """A connection of the extension to the same broker and namespace, for what no call of a Broker does."""
    return _core.Core(broker.address, broker.namespace, 20.0, "test")
