# SPDX-License-Identifier: Apache-2.0
"""A Receiver iterates over the arrays of a Channel until its stream ends, and tells when one is late."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from arraybridge import autograph
from arraybridge.arguments import Access, ReadWishes, check_seconds
from arraybridge.broker.delivery import Acquired, Decided, Wanted
from arraybridge.broker.due import Due
from arraybridge.callers import warn
from arraybridge.errors import BrokerTimeout, ChannelClosed, InvalidRequest

if TYPE_CHECKING:
    from arraybridge.broker.channel import Channel

_NO_PLANS: Final[Decided] = {}


class Late(BrokerTimeout):
    """No array came within the `deadline` of `Channel.receiver`. Raised once for each gap: the next call waits for the
    array, which is not late a second time.

    Attributes:
        deadline: in seconds.
        count: how often this Receiver was late until now.

    Example:
        >>> frames = broker.channel("camera").receiver(deadline=0.01)
        >>> try:
        ...     frame = next(frames)
        ... except arraybridge.Late as late:
        ...     print(f"no frame within {late.deadline} s, {late.count} times until now")
        no frame within 0.01 s, 1 times until now
    """

    def __init__(self, message: str = "", deadline: float = 0.0, count: int = 0) -> None:
        super().__init__(message, 4, "LATE")
        self.deadline = deadline
        self.count = count

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.deadline, self.count)


class ReceiverWishes(ReadWishes, total=False):
    """Arguments of `Channel.receiver` that are those of `Broker.get`."""

    access: Access


class Pace(NamedTuple):
    """Seconds to wait for an array; None: no limit.

    Attributes:
        timeout: of each call.
        deadline: from one array to the next.
    """

    timeout: float | None
    deadline: float | None

    @classmethod
    def checked(cls, timeout: float | None, deadline: float | None) -> Pace:
        """Raises:
        InvalidRequest: the deadline is not a number of seconds, or 0.
        """
        if deadline is not None and check_seconds(deadline, "deadline") == 0:
            raise InvalidRequest("deadline must be more than 0 seconds: try_receive does not wait")
        return cls(timeout, deadline)


class Receiver(Iterator[Any], AsyncIterator[Any]):
    """Made by `Channel.receiver`. One thread, or task, at a time."""

    def __init__(self, channel: Channel, wanted: Wanted, pace: Pace, info: bool, bare: str | None) -> None:
        self._channel = channel
        self._wanted = wanted
        self._pace = pace
        self._info = info
        self._bare = bare  # the framework, if there are no other options
        self._since = time.monotonic()  # since when the next array is awaited
        self._told = False  # Late, of the array that is awaited
        self._late = 0

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Receiver cannot be pickled: pass the Channel or its name, and call receiver() in the other process")

    @property
    def late(self) -> int:
        """How often no array came within the deadline."""
        return self._late

    def __iter__(self) -> Receiver:
        return self

    def __aiter__(self) -> Receiver:
        return self

    def __next__(self) -> Any:
        """Raises:
        PeerGone: a sender is lost; the next call goes on. BrokerTimeout: nothing arrived in time. Late: nor within the
            deadline; the next call waits for it.
        """
        due, is_deadline = self._due()
        try:
            result = self._next(due)
        except ChannelClosed as ended:
            self._arrived()
            _warn_of_earlier(ended)
            raise StopIteration from None
        except BrokerTimeout:
            if not is_deadline:
                raise
        else:
            self._arrived()
            return result
        raise self._is_late()

    async def __anext__(self) -> Any:
        due, is_deadline = self._due()
        received: Acquired | None = None
        try:
            received = await self._channel._areceived(self._wanted.private, due)
        except ChannelClosed as ended:
            self._arrived()
            _warn_of_earlier(ended)
            raise StopAsyncIteration from None
        except BrokerTimeout:
            if not is_deadline:
                raise
        if received is None:
            raise self._is_late()
        self._arrived()
        return self._channel._result_of(received, self._wanted, self._info)

    def _next(self, due: Due) -> Any:
        if self._bare is not None:
            return self._channel.receive(self._bare, timeout=due.left())
        delivery = self._channel._broker._delivery
        short = None if self._info else delivery.short_for(self._wanted, None)
        result, plan = self._channel._received(short or (self._wanted.private, _NO_PLANS), due)
        if plan is None:
            return self._channel._result_of(result, self._wanted, self._info)
        delivery.note(plan)
        return result

    def _due(self) -> tuple[Due, bool]:
        """The end of the next wait, and whether it is the deadline, not the timeout."""
        timeout, deadline = self._pace
        due = Due.after(timeout)
        if deadline is None or self._told:
            return due, False
        at = self._since + deadline
        return (Due(at, deadline), True) if due.at is None or at < due.at else (due, False)

    def _arrived(self) -> None:
        self._since, self._told = time.monotonic(), False

    def _is_late(self) -> Late:
        self._told = True
        self._late += 1
        seconds = self._pace.deadline or 0.0
        what = f"no array arrived in channel {self._channel.name!r} within its deadline of {seconds:g} s"
        remedy = "the next call waits for it; send more often, or pass a larger deadline="
        return Late(f"{what}: {remedy}", seconds, self._late)


def _warn_of_earlier(ended: ChannelClosed) -> None:
    """For a loop that ends without an array: it may belong to a second run, which is told of the end of the first."""
    if ended.earlier:
        remedy = "if that was an earlier run, state run= in each process of a run, or call Channel.drain() before the loop"
        warn(f"the loop ends without an array: {ended.message}; {remedy}", RuntimeWarning)


autograph.mark_module(__name__)
