# SPDX-License-Identifier: Apache-2.0
"""A Suspicion begins with a notice that an end of a channel is lost, and lasts until the peer that is lost has been found.

A notice names a process, of which several peers may live, and the other ends of the lost process may close a moment later.
So peers are examined until one is found, for a while at most: a peer that said goodbye is not there any more.
"""

from __future__ import annotations

from typing import Final

from arraybridge.broker.due import Due

_PAUSE_S: Final = 0.02  # between two examinations
_LONGEST_S: Final = 10.0


class Suspicion:
    """Of one thread."""

    def __init__(self) -> None:
        self._lost = 0  # notices without a peer
        self._until = Due.after(0)

    def arise(self) -> None:
        """A notice has come."""
        self._lost += 1
        self._until = Due.after(_LONGEST_S)

    def confirmed(self) -> None:
        """A lost peer has been found."""
        self._lost = max(0, self._lost - 1)

    def due(self) -> bool:
        """True: peers are to be examined now."""
        if self._lost and self._until.over():
            self._lost = 0
        return self._lost > 0

    def pause(self) -> float | None:
        """Seconds until they are examined again; None: no notice is open."""
        return _PAUSE_S if self._lost else None
