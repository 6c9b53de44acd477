# SPDX-License-Identifier: Apache-2.0
"""reorder restores the order of frames that several workers processed, and tells which frames were lost with a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from arraybridge import autograph
from arraybridge.errors import BrokerError, InvalidRequest, PeerGone


class Gap(BrokerError, LookupError):
    """Results are missing, because a worker was lost with their frames, or dropped them. Raised once; the next call goes on
    after them.

    Attributes:
        missing: the sequences of the missing frames.
        lost: the PeerGone errors that were raised since the last gap: the workers that died.

    Example:
        >>> gap = arraybridge.Gap("frame 5 is missing", range(5, 6))
        >>> list(gap.missing)
        [5]
    """

    def __init__(self, message: str = "", missing: range = range(0), lost: tuple[PeerGone, ...] = ()) -> None:
        super().__init__(message, 15, "GAP")
        self.missing = missing
        self.lost = lost

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.missing, self.lost)


def reorder(results: Iterator[Any], window: int = 16, *, first: int = 1, key: Callable[[Any], int] | None = None) -> Reorder:
    """The results of several workers in the order of their frames, for `for` and for `async for`.

    Each worker sends the sequence of the frame on, which `receive(info=True)` tells it, as the metadata of its result. Results
    that come early are held, at most `window` of them, in broker memory. A frame is missing when `window` later results have
    come before its own, or when the stream has ended: Gap says which. No result tells of frames that are missing after the last one:
    PeerGone does, and `Reorder.expected` has the first of them.

    Args:
        results: `channel.receiver(info=True)` of the channel into which the workers send, or any iterator. Its errors, such as
            PeerGone, pass through, and the next call goes on.
        window: how many results are held. More than the workers have in their hands together: a result of a slow worker that
            comes after its Gap is dropped, and counted in `Reorder.dropped`.
        first: the sequence of the first frame; that of a new channel is 1.
        key: from a result to the sequence of its frame; None: its metadata, or the value of "sequence" in it.

    Raises:
        InvalidRequest: not one of these values; later, a result without a sequence.

    Example:
        >>> work, done = broker.channel("work"), broker.channel("done")
        >>> for number in (1, 2):
        ...     work.send(np.full(2, number))
        >>> frames = [work.receive(info=True, timeout=10) for _ in range(2)]    # usually two processes
        >>> for frame in reversed(frames):
        ...     done.send(frame.array * 10, metadata=frame.sequence)
        >>> ordered = arraybridge.reorder(done.receiver(info=True))
        >>> [next(ordered).array.tolist() for _ in range(2)]
        [[10, 10], [20, 20]]
    """
    if not hasattr(results, "__next__") and not hasattr(results, "__anext__"):
        raise InvalidRequest(f"reorder takes an iterator, not {type(results).__name__}: pass channel.receiver(info=True)")
    for what, number in ("window", window), ("first", first):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise InvalidRequest(f"{what} must be an integer of at least 1, not {number!r}")
    return Reorder(results, window, first, key or _sequence_of)


class Reorder(Iterator[Any], AsyncIterator[Any]):
    """Made by `reorder`. One thread, or task, at a time."""

    def __init__(self, results: Any, window: int, first: int, key: Callable[[Any], int]) -> None:
        self._results = results
        self._window = window
        self._expected = first
        self._key = key
        self._held: dict[int, Any] = {}
        self._ended = False
        self._lost: list[PeerGone] = []
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Results that came after their Gap, or twice."""
        return self._dropped

    @property
    def expected(self) -> int:
        """The sequence of the next frame."""
        return self._expected

    def __iter__(self) -> Reorder:
        return self

    def __aiter__(self) -> Reorder:
        return self

    def __next__(self) -> Any:
        """Raises:
        Gap: results are missing. Errors of the results. The next call goes on.
        """
        while not self._is_due():
            try:
                self._hold(next(self._results))
            except StopIteration:
                self._ended = True
            except PeerGone as lost:
                self._lost.append(lost)
                raise
        if self._is_over():
            raise StopIteration
        return self._take()

    async def __anext__(self) -> Any:
        while not self._is_due():
            try:
                self._hold(await anext(self._results))
            except StopAsyncIteration:
                self._ended = True
            except PeerGone as lost:
                self._lost.append(lost)
                raise
        if self._is_over():
            raise StopAsyncIteration
        return self._take()

    def _is_due(self) -> bool:
        return self._expected in self._held or len(self._held) >= self._window or self._ended

    def _is_over(self) -> bool:
        """The stream has ended, and nothing of it is held. The next call waits for the next stream."""
        if self._held or not self._ended:
            return False
        self._ended = False
        return True

    def _hold(self, result: Any) -> None:
        sequence = self._key(result)
        if not isinstance(sequence, int) or isinstance(sequence, bool):
            raise InvalidRequest(f"a result has no sequence, but {sequence!r}: send metadata=received.sequence, or pass key=")
        if sequence < self._expected or sequence in self._held:
            self._dropped += 1
        else:
            self._held[sequence] = result

    def _take(self) -> Any:
        """The expected result. REQUIRES: one is held."""
        if self._expected not in self._held:
            raise self._gap()
        result = self._held.pop(self._expected)
        self._expected += 1
        return result

    def _gap(self) -> Gap:
        missing = range(self._expected, min(self._held))
        self._expected = missing.stop
        lost, self._lost = tuple(self._lost), []
        frames = f"frame {missing[0]} is" if len(missing) == 1 else f"frames {missing[0]} to {missing[-1]} are"
        since = "their stream has ended" if self._ended else f"{len(self._held)} later results have come"
        workers = ", ".join(f"{each.client or 'a worker'} (process {each.process_id})" for each in lost)
        why = f"lost with {workers}" if lost else "a worker was lost with them, dropped them, or is slower than window= allows"
        return Gap(f"{frames} missing, and {since}: {why}; the next call goes on with frame {missing.stop}", missing, lost)


def _sequence_of(result: Any) -> Any:
    metadata = getattr(result, "metadata", None)
    return metadata.get("sequence") if isinstance(metadata, dict) else metadata


autograph.mark_module(__name__)
