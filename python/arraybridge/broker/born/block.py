# SPDX-License-Identifier: Apache-2.0
"""A Born is a `with` block in which NumPy allocates its arrays in broker memory, and what became of these arrays.

Example:
    >>> with broker.born("numpy") as born:
    ...     frame = np.full((1000, 1000), 2.5)
    >>> born.arrays, born.missed
    (1, {})
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from arraybridge import autograph
from arraybridge.errors import InvalidRequest, printable
from arraybridge.notebook.facts import table_of


class Scope(Protocol):
    """NumPy's use of a heap, in the extension."""

    def enter(self) -> None:
        """Connects, fetches memory, and exchanges the allocator of this context, or of all."""

    def leave(self) -> None:
        """Ends it."""

    def counts(self) -> tuple[int, int, dict[str, tuple[int, int]], str]:
        """Arrays and bytes that were born, both of those that were not by the reason, and the latest refusal."""


class Missed(NamedTuple):
    """Arrays that were large enough, and that NumPy's own allocator has.

    Attributes:
        arrays: how many, in total.
        bytes: of all of them.
    """

    arrays: int
    bytes: int


class Born:
    """The result of `Broker.born`: a context manager, entered once, whose numbers stay after its end.

    The numbers count allocations, so that they have temporary arrays too, and arrays that were freed since. They are those
    of this block alone. A resized array counts again if it moves.

    Example:
        >>> with broker.born("numpy") as born:
        ...     image = np.ones((512, 512), "float32") * 2    # and a temporary one, whose memory it takes or not
        >>> born.arrays >= 1, born.bytes >= image.nbytes
        (True, True)
        >>> share = broker.put(image, "image")                # copies nothing
    """

    def __init__(self, enter: Callable[[], Scope]) -> None:
        self._make: Callable[[], Scope] | None = enter
        self._scope: Scope | None = None

    def __enter__(self) -> Self:
        """From now on NumPy's arrays are born in broker memory.

        Raises:
            BrokerUnavailable: no daemon answers.
            InvalidRequest: it was entered before.
        """
        if self._make is None:
            raise InvalidRequest("this block of broker.born() was entered before, and is entered once: call broker.born() again")
        self._scope, self._make = self._make(), None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._scope is not None:
            self._scope.leave()

    @property
    def arrays(self) -> int:
        """How many arrays were allocated in broker memory."""
        return self._counts()[0]

    @property
    def bytes(self) -> int:
        """The bytes of these arrays."""
        return self._counts()[1]

    @property
    def missed(self) -> dict[str, Missed]:
        """The arrays of at least `min_bytes` that NumPy's own allocator has, by the reason; a put copies them.

        "no_room": no memory was at hand; more of it is fetched beside, for the next arrays of this size. "refused": the
        broker had no memory either, or did not answer; `refusal` says why. "zeros": `np.zeros` of more than 16 MiB, which is
        faster elsewhere. "child": a forked child, in a block of its parent.
        """
        return {reason: Missed(*numbers) for reason, numbers in self._counts()[2].items()}

    @property
    def refusal(self) -> str:
        """The broker's latest refusal of memory for arrays, with names and numbers; "" if there was none."""
        return self._counts()[3]

    def __repr__(self) -> str:
        if self._scope is None:
            return "<Born not entered>"
        missed = "".join(f", {each.arrays} {reason}" for reason, each in self.missed.items())
        return f"<Born {self.arrays} arrays, {self.bytes} bytes; missed{missed or ' none'}>".replace("missed,", "missed")

    def _repr_html_(self) -> str:
        missed = [(f"missed: {reason}", f"{each.arrays} arrays, {each.bytes} bytes") for reason, each in self.missed.items()]
        facts = [("arrays", self.arrays), ("bytes", self.bytes), *missed, ("refusal", printable(self.refusal))]
        return table_of("Born", facts)

    def _counts(self) -> tuple[int, int, dict[str, tuple[int, int]], str]:
        return (0, 0, {}, "") if self._scope is None else self._scope.counts()


autograph.mark_module(__name__)
