# SPDX-License-Identifier: Apache-2.0
"""The frameworks of one block of `Broker.born`, entered one after the other, and what became of the arrays of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Protocol

from arraybridge.adapters import born
from arraybridge.errors import FrameworkNotAvailable

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

    def __init__(self, names: Sequence[str], numpy: Callable[[], Scope], libraries: Callable[[tuple[str, ...]], Scope]) -> None:
        """Args:
            numpy, libraries: make the Scope of NumPy, and of libraries by their names.

        Raises:
            BrokerUnavailable: no daemon answers. Then nothing is entered.
        """
        self.scopes: dict[str, Scope] = {}
        self.skipped: dict[str, str] = {}
        with ExitStack() as entered:
            for name in names:
                if name == "numpy":
                    self._enter(entered, name, numpy())
                else:
                    self._enter_libraries(entered, name, libraries)
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

    def _enter(self, entered: ExitStack, name: str, scope: Scope) -> None:
        lack = scope.enter()
        if lack:
            self.skipped[name] = lack
            return
        self.scopes[name] = scope
        entered.callback(scope.leave)

    def _enter_libraries(self, entered: ExitStack, name: str, libraries: Callable[[tuple[str, ...]], Scope]) -> None:
        adapter = born.named(name)
        if adapter.REFUSAL:
            self.skipped[name] = adapter.REFUSAL
            return
        try:
            entered.enter_context(adapter.allocating())
        except FrameworkNotAvailable as error:
            self.skipped[name] = str(error)
            return
        self._enter(entered, name, libraries(adapter.LIBRARIES))
