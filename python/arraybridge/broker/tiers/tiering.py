# SPDX-License-Identifier: Apache-2.0
"""Tiering: the part of Broker that lists the shares with files."""

from __future__ import annotations

from arraybridge import autograph
from arraybridge.broker.session import Session
from arraybridge.broker.tiers.calls import Action, Stored, asked


class Tiering(Session):
    """A Session whose shares may be in files."""

    def stored(self) -> list[Stored]:
        """The named shares of this namespace that have a file: those whose bytes are on disk, and durable ones.

        Example:
            >>> broker.stored()
            []
        """
        return asked(self._connection, Action.LIST)


autograph.mark_module(__name__)
