# SPDX-License-Identifier: Apache-2.0
"""Caching: the part of Broker that makes a share once for all processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from arraybridge import autograph
from arraybridge.arguments import check_seconds
from arraybridge.broker.born.births import Births
from arraybridge.broker.keep.claim import Claim
from arraybridge.broker.publication import check_name, lifetime_of
from arraybridge.broker.share import Share
from arraybridge.errors import BrokerTimeout, InvalidRequest, ShareExists, ShareNotFound

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

STILL_S: Final = 30.0  # a call of C that keeps the interpreter lock stops the renewal of a claim, too
_ASK_S: Final = 5.0  # how long one call waits for another process
_making = threading.local()


class Caching(Births):
    """A Session whose shares can be made where they are first asked for."""

    def cached(
        self,
        name: str,
        make: Callable[[], Any],
        framework: str = "numpy",
        *,
        wait: float | None = None,
        lifetime: float | None = None,
        **wishes: Any,
    ) -> Any:
        """The share `name` as arrays of `framework`; if there is none, what `make()` returns is put under this name first.

        At most one process makes it: the others that ask meanwhile wait, and get it. If the process that makes it dies, or its
        `make` raises, one of those that wait makes it in its place; the exception is raised where it occurred. A call that
        finds the share costs what `get` costs. All processes get the same arrays, of the framework that each asks for,
        whatever `make` returned; they are read-only as with `get`.

        The share stays until it is withdrawn (`withdraw(name)`), its lifetime ends, or the broker does. The name is all that
        tells one content from another: put into it what the content depends on (`"features/v3"`), or use
        `arraybridge.cache`, which does.

        A process that stands still in `make` for 30 seconds (it was stopped, or a function written in C holds the interpreter
        lock) loses its turn to the next one; then both make it, and all get what is published first.

        Args:
            make: called without arguments; returns what `put` takes: an array, a tree, a table.
            wait: seconds to wait for another process that makes it; None: as long as that process lives.
            lifetime: as in `put`, of what is made.
            wishes: `access`, `copy`, `require`, `device`, `allow_downcast`, `explain`, `types`, `info` and `column` as in `get`.

        Raises:
            BrokerTimeout: another process has not finished within `wait` seconds; the message names it.
            InvalidRequest: `make` cannot be called, or asks for the same name itself.
            Whatever `make` raises. Other errors of `put` and `get`.

        Example:
            >>> features = broker.cached("features/v3", lambda: np.arange(6).reshape(2, 3) / 2, "torch")
            >>> features.shape
            torch.Size([2, 3])
        """
        broker: Any = self
        try:
            return broker.get(name, framework, **wishes) if wishes else broker.get(name, framework)
        except ShareNotFound:
            pass
        check_name(name)
        if not callable(make):
            raise InvalidRequest(f"make must be a function that returns the arrays of {name!r}, not {make!r}")
        if "newer_than" in wishes:
            raise InvalidRequest("cached takes the share that there is: newer_than goes with get")
        lifetime_of(lifetime)
        deadline = None if wait is None else time.monotonic() + check_seconds(wait, "wait")
        while True:
            share = made_by(broker, name, lambda: broker.put(make(), name, lifetime=lifetime), deadline)
            try:
                return broker.get(name if share is None else share, framework, **wishes)
            except ShareNotFound:
                continue  # withdrawn meanwhile


def made_by(broker: Broker, name: str, publish: Callable[[], Share | None], deadline: float | None) -> Share | None:
    """Calls `publish`, in one process at a time, and returns its share; None: another process has published this name.

    Args:
        deadline: of time.monotonic, for the wait for another process; None: as long as it lives.

    Raises:
        BrokerTimeout, ShareNotFound: another process has not finished. InvalidRequest: `publish` asks for this name itself.
    """
    names: set[tuple[str, str, str]] = _making.__dict__.setdefault("names", set())
    key = broker.address, broker.namespace, name
    if key in names:
        raise InvalidRequest(f"the function that makes {name!r} asks for {name!r} itself: it would wait for its own result")
    claim = Claim(broker, name, 0, STILL_S)
    if not _is_granted(claim, deadline):
        return None
    with claim:
        names.add(key)
        try:
            return publish()
        except ShareExists:
            return None
        finally:
            names.discard(key)


def _is_granted(claim: Claim, deadline: float | None) -> bool:
    while True:
        left = _ASK_S if deadline is None else max(deadline - time.monotonic(), 0.0)
        try:
            return claim.is_granted(min(left, _ASK_S))
        except (BrokerTimeout, ShareNotFound):
            if left == 0.0:
                raise


autograph.mark_module(__name__)
