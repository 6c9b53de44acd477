# SPDX-License-Identifier: Apache-2.0
"""A Listing is the list that `Broker.list` returns, which a notebook shows as a table. A Listed is a row of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from arraybridge.arrays.devices import named
from arraybridge.notebook.facts import ROWS_MAX, rows_of

if TYPE_CHECKING:
    from arraybridge.broker.share import Share

_HEAD = ("name", "arrays", "bytes", "device", "generation", "leases", "age")


class Listed(NamedTuple):
    """A share as `Broker.list` has it.

    Attributes:
        share: its name, generation, shapes and size.
        maker: the number of the session that put it.
        maker_process_id: of the process that put it, as the daemon sees it; 0: unknown.
        leases: the number of acquires that are still held, over all processes.
        age_ms: milliseconds since it was put.

    Example:
        >>> share = broker.put(np.ones(3), "listed")
        >>> [(row.share.name, row.age_ms < 60_000) for row in broker.list("listed")]
        [('listed', True)]
    """

    share: Share
    maker: int
    maker_process_id: int
    leases: int
    age_ms: int


class Listing(list[Listed]):
    """The shares of a namespace, or a part of them."""

    def _repr_html_(self) -> str:
        rows = [
            (
                each.share.name, each.share.arrays_text(3), f"{each.share.nbytes:,}", named(each.share.device), each.share.generation,
                each.leases, f"{each.age_ms / 1000:,.1f} s",
            )
            for each in self[:ROWS_MAX]
        ]  # fmt: skip
        return rows_of(f"{len(self)} shares", _HEAD, rows, more=len(self) - len(rows))
