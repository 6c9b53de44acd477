# SPDX-License-Identifier: Apache-2.0
"""A Born is a `with` block in which frameworks allocate their arrays in broker memory, and what became of these arrays.

Example:
    >>> with broker.born("numpy") as born:
    ...     frame = np.full((1000, 1000), 2.5)
    >>> born.arrays, born.missed
    (1, {})
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from arraybridge import autograph
from arraybridge.broker.born.frameworks import Counts, Frameworks
from arraybridge.errors import InvalidRequest, printable
from arraybridge.notebook.facts import table_of


class Missed(NamedTuple):
    """Arrays that were large enough, and that the framework's own allocator has.

    Attributes:
        arrays: how many, in total.
        bytes: of all of them.
    """

    arrays: int
    bytes: int


class Born:
    """The result of `Broker.born`: a context manager, entered once, whose numbers stay after its end.

    The numbers count allocations, so that they have temporary arrays too, and arrays that were freed since. They are those
    of this block alone. A resized array counts again if it moves. Memory that torch and JAX need for a computation, and free at
    its end, counts as an array.

    Example:
        >>> with broker.born("numpy") as born:
        ...     image = np.ones((512, 512), "float32") * 2    # and a temporary one, whose memory it takes or not
        >>> born.arrays >= 1, born.bytes >= image.nbytes
        (True, True)
        >>> share = broker.put(image, "image")                # copies nothing
    """

    def __init__(self, enter: Callable[[], Frameworks]) -> None:
        self._make: Callable[[], Frameworks] | None = enter
        self._frameworks: Frameworks | None = None

    def __enter__(self) -> Self:
        """From now on the frameworks' arrays are born in broker memory.

        Raises:
            BrokerUnavailable: no daemon answers.
            InvalidRequest: it was entered before.
        """
        if self._make is None:
            raise InvalidRequest("this block of broker.born() was entered before, and is entered once: call broker.born() again")
        self._frameworks, self._make = self._make(), None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._frameworks is not None:
            self._frameworks.leave()

    @property
    def arrays(self) -> int:
        """How many arrays were allocated in broker memory."""
        return self._counts().arrays

    @property
    def bytes(self) -> int:
        """The bytes of these arrays."""
        return self._counts().bytes

    @property
    def missed(self) -> dict[str, Missed]:
        """The arrays of at least `min_bytes` that the framework's own allocator has, by the reason; a put copies them.

        "no_room": no memory was at hand; more of it is fetched beside, for the next arrays of this size. "refused": the
        broker had no memory either, or did not answer; `refusal` says why. "zeros": `np.zeros` of more than 16 MiB, which is
        faster elsewhere. "child": a forked child, in a block of its parent. On a GPU a framework whose array was "refused" has
        raised its own error, or, if no broker answered, used its own memory.
        """
        return {reason: Missed(*numbers) for reason, numbers in self._counts().missed.items()}

    @property
    def refusal(self) -> str:
        """The broker's latest refusal of memory for arrays, with names and numbers; "" if there was none."""
        return self._counts().refusal

    @property
    def by_framework(self) -> dict[str, tuple[int, int]]:
        """Arrays and bytes that were born, of each framework of the block.

        Example:
            >>> with broker.born("numpy", "torch") as born:
            ...     batch = np.ones((512, 512), "float32")
            >>> born.by_framework
            {'numpy': (1, 1048576), 'torch': (0, 0)}
        """
        inside = self._frameworks
        return {} if inside is None else {name: inside.counts_of(name)[:2] for name in inside.scopes}

    @property
    def skipped(self) -> dict[str, str]:
        """Frameworks of the block whose arrays are all their own, so that a put copies them, and why: a framework is not
        installed, or its allocator cannot be exchanged, or it must not be (TensorFlow).

        Example:
            >>> with broker.born("tensorflow") as born:
            ...     pass
            >>> born.skipped["tensorflow"][:47]
            'TensorFlow makes other tensors in the memory of'
        """
        return {} if self._frameworks is None else dict(self._frameworks.skipped)

    def __repr__(self) -> str:
        if self._frameworks is None:
            return "<Born not entered>"
        missed = ",".join(f" {each.arrays} {reason}" for reason, each in self.missed.items())
        skipped = f"; skipped {', '.join(self.skipped)}" if self.skipped else ""
        return f"<Born {self.arrays} arrays, {self.bytes} bytes; missed{missed or ' none'}{skipped}>"

    def _repr_html_(self) -> str:
        missed = [(f"missed: {reason}", f"{each.arrays} arrays, {each.bytes} bytes") for reason, each in self.missed.items()]
        skipped = [(f"skipped: {name}", printable(why)) for name, why in self.skipped.items()]
        facts = [("arrays", self.arrays), ("bytes", self.bytes), *missed, *skipped, ("refusal", printable(self.refusal))]
        return table_of("Born", facts)

    def _counts(self) -> Counts:
        return Counts(0, 0, {}, "") if self._frameworks is None else self._frameworks.counts()


autograph.mark_module(__name__)
