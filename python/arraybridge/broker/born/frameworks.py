# SPDX-License-Identifier: Apache-2.0
"""The frameworks of one block of `Broker.born`, entered one after the other, and what became of the arrays of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Protocol

Missed = tuple[int, int]  # arrays and bytes


class Counts(NamedTuple):
    """Of one framework, or of all: arrays and bytes that were born, both of those that were not by the reason, and the
    broker's latest refusal.
    """

    arrays: int
    bytes: int
    missed: dict[str, Missed]
    refusal: str


class Scope(Protocol):
    """A framework's use of a heap, in the extension."""

    def enter(self) -> str | None:
        """Connects, fetches memory, and exchanges the allocator; or says why that cannot be exchanged."""

    def leave(self) -> None:
        """Ends it."""

    def counts(self) -> tuple[int, int, dict[str, Missed], str]:
        """The values of Counts."""


class Frameworks:
    """A resource: `leave` ends all that was entered."""

    def __init__(self, names: Sequence[str], scope_of: Callable[[str, ExitStack], Scope | str]) -> None:
        """Args:
            scope_of: makes the Scope of a framework, or says why it has none. It enters into the stack whatever must end with it.

        Raises:
            BrokerUnavailable: no daemon answers. Then nothing is entered.
        """
        self.scopes: dict[str, Scope] = {}
        self.skipped: dict[str, str] = {}
        with ExitStack() as entered:
            for name in names:
                scope = scope_of(name, entered)
                lack = scope if isinstance(scope, str) else scope.enter()
                if isinstance(scope, str) or lack:
                    self.skipped[name] = lack or ""
                else:
                    self.scopes[name] = scope
                    entered.callback(scope.leave)
            self._entered = entered.pop_all()

    def leave(self) -> None:
        """Each framework allocates as before."""
        self._entered.close()

    def counts(self) -> Counts:
        """Of all of them."""
        arrays, bytes, missed, refusal = 0, 0, dict[str, Missed](), ""
        for name in self.scopes:
            its = self.counts_of(name)
            arrays, bytes, refusal = arrays + its.arrays, bytes + its.bytes, refusal or its.refusal
            for reason, (more, more_bytes) in its.missed.items():
                known = missed.get(reason, (0, 0))
                missed[reason] = (known[0] + more, known[1] + more_bytes)
        return Counts(arrays, bytes, missed, refusal)

    def counts_of(self, name: str) -> Counts:
        """Of one that was not skipped."""
        return Counts(*self.scopes[name].counts())
