# SPDX-License-Identifier: Apache-2.0
"""evict: the shares of a group leave memory, the least recently used ones first, until it has no more than its budget."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from arraybridge import autograph
from arraybridge.broker.share import Share
from arraybridge.errors import BrokerError, ShareNotFound

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker
    from arraybridge.notebook.listing import Listed

_NO_FILES: Final = frozenset({"NO_TIER", "TIER_OFF", "DISK_FAILED", "NOT_MOVABLE"})


def evict(broker: Broker, prefix: str, budget: int, kept: str, last: Mapping[str, float]) -> None:
    """Takes shares that no process holds out of memory, until all have at most `budget` bytes there. A broker with a directory
    for files gets them as files; when that is full, the least recently used files go. Otherwise the shares are withdrawn.

    Args:
        prefix: the group has all shares whose names begin with it.
        kept: the name of a share that stays.
        last: when a share was last used, by name and time.monotonic; one without an entry: when it was published.
    """
    broker.flush()  # this process may have dropped arrays just now
    resident, files = _by_use(broker, prefix, last)
    excess = sum(row.share.nbytes for row in resident) - budget
    for row in resident:
        if excess > 0 and row.leases == 0 and row.share.name != kept and _leaves(row.share, files):
            excess -= row.share.nbytes


def _by_use(broker: Broker, prefix: str, last: Mapping[str, float]) -> tuple[list[Listed], list[Share]]:
    """The shares in memory, and those in files; the least recently used ones first."""
    now = time.monotonic()
    rows = sorted(broker.list(prefix), key=lambda row: max(now - row.age_ms / 1000, last.get(row.share.name, 0.0)))
    on_disk = {stored.name for stored in broker.stored() if not stored.in_memory}
    return [row for row in rows if row.share.name not in on_disk], [row.share for row in rows if row.share.name in on_disk]


def _leaves(share: Share, files: list[Share]) -> bool:
    """Whether its bytes left the memory; False: a process reads it. `files`: those that go when their directory is full."""
    while True:
        try:
            share.demote()
            return True
        except ShareNotFound:  # withdrawn by another process
            return True
        except BrokerError as error:
            if error.reason == "DISK_FULL" and files:
                _withdraw(files.pop(0))
            elif error.reason == "DISK_FULL" or error.reason in _NO_FILES:
                _withdraw(share)
                return True
            else:
                return False


def _withdraw(share: Share) -> None:
    with contextlib.suppress(ShareNotFound):  # by another process
        share.withdraw()


autograph.mark_module(__name__)
