# SPDX-License-Identifier: Apache-2.0
"""Tiered: the part of Share that moves its bytes between memory and a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Self

from arraybridge import autograph
from arraybridge.arguments import check_word
from arraybridge.arrays.devices import HOST
from arraybridge.broker.tiers.calls import Action, Stored, asked
from arraybridge.conversion.source import Held
from arraybridge.errors import InvalidRequest

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

Residency = Literal["host", "disk", "device", "lost"]


_PINS: Final = (None, "soft", "hard")  # the places are the protocol's numbers
_PRIORITY_MAX: Final = 1000


def _rank_of(pin: str | None, priority: int) -> tuple[int, int]:
    if pin not in _PINS:
        raise InvalidRequest(f'pin must be "soft", "hard" or None, not {pin!r}')
    if not isinstance(priority, int) or abs(priority) > _PRIORITY_MAX:
        raise InvalidRequest(f"priority must be an integer from {-_PRIORITY_MAX} to {_PRIORITY_MAX}, not {priority!r}")
    return _PINS.index(pin), priority


class Tiered(Held):
    """A Held whose bytes may be in a file of the broker's directory. `get` reads them back by itself."""

    __slots__ = ()

    _broker: Broker

    @property
    def name(self) -> str:
        """The name of the share."""
        raise NotImplementedError

    @property
    def generation(self) -> int:
        """The number of the share."""
        raise NotImplementedError

    @property
    def device(self) -> tuple[int, int]:
        """DLPack's (type, id)."""
        raise NotImplementedError

    @property
    def residency(self) -> Residency:
        """Where its bytes are now: "host" memory, the memory of a "device", a file on "disk"; "lost": its file was damaged.

        Raises:
            ShareNotFound: it has ended.
        """
        found = self.stored
        if found is None or found.in_memory:
            return "host" if self.device == HOST else "device"
        return "lost" if found.lost else "disk"

    @property
    def stored(self) -> Stored | None:
        """The broker's facts about its file; None: it has none.

        Raises:
            ShareNotFound: it has ended.
        """
        return next(iter(asked(self._broker._connection, Action.LIST, self.name, self.generation)), None)

    def demote(self, to: Literal["disk"] = "disk", *, timeout: float | None = None) -> Self:
        """Moves its bytes from memory to a file, and returns the share. The name stays; the next `get` reads them back.

        Args:
            timeout: seconds to wait for the move; None: an hour.

        Raises:
            BrokerError: a process reads the share (reason "SHARE_IN_USE"), it is on a GPU or has no name of its own
                ("NOT_MOVABLE"), it has a hard pin ("PINNED"), the broker has no directory ("NO_TIER"), the directory is full ("DISK_FULL") or has failed
                ("TIER_OFF", "DISK_FAILED").
            ShareNotFound: it has ended.
        """
        check_word(to, "to", ("disk",))
        asked(self._broker._connection, Action.MOVE_OUT, self.name, self.generation, timeout)
        return self

    def keep(self, *, timeout: float | None = None) -> Self:
        """Writes its bytes to a file beside the memory, and returns the share when the disk has them. A broker that is started
        later with the same directory has the name again, also after the host was restarted.

        Args:
            timeout: seconds to wait for the disk; None: an hour.

        Raises:
            BrokerError: as of `demote`. OutOfMemory: its bytes were in a file alone, and have no room. ShareNotFound: it has ended.
        """
        asked(self._broker._connection, Action.KEEP, self.name, self.generation, timeout)
        return self

    def pin(self, pin: Literal["soft", "hard"] | None, *, priority: int = 0, timeout: float | None = None) -> Self:
        """Says which bytes leave memory first when room is wanted, for all processes, and returns the share.

        Args:
            pin: "soft": after all shares without a pin; "hard": never; None: as others.
            priority: -1000 to 1000; of shares with the same pin the ones with the lowest leave first.
            timeout: of a kept share, whose file is written anew: seconds to wait for the disk; None: an hour.

        Raises:
            InvalidRequest: another word or number. ShareNotFound: it has ended. BrokerError: the broker has no directory
            ("NO_TIER").
        """
        asked(self._broker._connection, Action.PIN, self.name, self.generation, timeout, _rank_of(pin, priority))
        return self

    def prefetch(self, *, timeout: float | None = None) -> Self:
        """Reads its bytes from the file back into memory, and returns the share: the next `get` does not wait.

        Raises:
            OutOfMemory: the broker has no room. BrokerError: the file is damaged (reason "SHARE_LOST"). ShareNotFound: it has
            ended.
        """
        asked(self._broker._connection, Action.MOVE_IN, self.name, self.generation, timeout)
        return self

    def verify(self, *, timeout: float | None = None) -> Self:
        """Reads its file and compares the digest, and returns the share.

        Raises:
            BrokerError: the file is damaged (reason "SHARE_LOST", or "FILE_DAMAGED" while the bytes are in memory, too), or it
                has none ("NO_FILE"). ShareNotFound: it has ended.
        """
        asked(self._broker._connection, Action.VERIFY, self.name, self.generation, timeout)
        return self


autograph.mark_module(__name__)
