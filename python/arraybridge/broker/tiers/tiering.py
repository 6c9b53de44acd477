# SPDX-License-Identifier: Apache-2.0
"""Tiering: the part of Broker that lists the shares with files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Literal

from arraybridge import autograph
from arraybridge.arguments import check_text
from arraybridge.broker.session import Session
from arraybridge.broker.share import Share
from arraybridge.broker.tiers.calls import Action, Stored, asked
from arraybridge.errors import BrokerError, ShareNotFound

_FAILED_PRECONDITION = 9  # of gRPC
_DATA_LOSS = 15


class Tiering(Session):
    """A Session whose shares may be in files."""

    def stored(self) -> list[Stored]:
        """The named shares of this namespace that have a file: those whose bytes are on disk, and durable ones.

        Example:
            >>> broker.stored()
            []
        """
        return asked(self._connection, Action.LIST)

    def _check_resident(self, names: str | Share | Iterable[str | Share]) -> Literal["zero-copy"] | None:
        """For require="resident": None if the bytes of these shares are in memory, or there is no such share yet.

        Raises:
            BrokerError: one of them is in a file (reason "NOT_RESIDENT"), or its file was damaged ("SHARE_LOST").
        """
        for each in (names,) if isinstance(names, (str, Share)) or not isinstance(names, Iterable) else names:
            name, generation = (each.name, each.generation) if isinstance(each, Share) else (each, 0)
            check_text(name, "a name", empty=False)
            with contextlib.suppress(ShareNotFound):
                for row in asked(self._connection, Action.LIST, name, generation):
                    _check_in_memory(row, self.namespace)
        return None


def _check_in_memory(row: Stored, namespace: str) -> None:
    share = f"share {row.name!r} of namespace {namespace!r}"
    if row.lost:
        raise BrokerError(f"the bytes of {share} are lost: its file was damaged; put it again", _DATA_LOSS, "SHARE_LOST")
    if not row.in_memory:
        raise BrokerError(
            f"the {row.nbytes} bytes of {share} are in a file: prefetch() of the share, or a get without"
            ' require="resident", reads them into memory',
            _FAILED_PRECONDITION, "NOT_RESIDENT",
        )  # fmt: skip


autograph.mark_module(__name__)
