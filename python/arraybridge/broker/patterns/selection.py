# SPDX-License-Identifier: Apache-2.0
"""select waits for any of several channels, services and watches."""

from __future__ import annotations

import math
import select as _system
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from arraybridge import autograph
from arraybridge.broker.due import Due
from arraybridge.errors import InvalidRequest

_POLL_MS_MAX: Final = 2**31 - 1


class HasFileno(Protocol):
    """A Channel, a Service, a Watch, a socket, or a pipe of multiprocessing."""

    def fileno(self) -> int: ...


Source = TypeVar("Source", bound=HasFileno)


def select(sources: Iterable[Source], timeout: float | None = None) -> list[Source]:
    """Waits for any of several sources: a Channel or Service whose `receive`, or a Watch whose `next`, would not wait.

    A Channel that was closed, whose stream has ended or whose sender is lost is ready too: its `receive` says so. Each source that
    has a `fileno` can be awaited beside them. From the first `select` or `fileno` on, a channel receives one array ahead, and a
    service one request, which the next `receive` returns.

    Args:
        sources: Channels that receive, Services, Watches, and other objects with a `fileno`.
        timeout: seconds to wait for one; None: no limit; 0: does not wait. Ctrl-C ends it, and nothing is lost.

    Returns:
        The ready ones, in the order of `sources`; empty: none was ready in time.

    Raises:
        InvalidRequest: there are no sources, or one has no `fileno`. Errors of `Channel.open`.

    Example:
        >>> left, right = broker.channel("left").open("receiver"), broker.channel("right").open("receiver")
        >>> broker.channel("right").send(np.ones(3))    # usually in another process
        >>> arraybridge.select([left, right], timeout=10) == [right]
        True
        >>> right.receive().tolist()
        [1.0, 1.0, 1.0]
    """
    found = list(sources)
    if not found:
        raise InvalidRequest("select needs at least one channel, service or watch: with none it would wait for nothing")
    poll = _system.poll()
    numbers = [_fileno_of(source) for source in found]
    for number in set(numbers):
        poll.register(number, _system.POLLIN)
    left = Due.after(timeout).left()
    ready = {number for number, _ in poll.poll(None if left is None else min(math.ceil(left * 1000), _POLL_MS_MAX))}
    return [source for source, number in zip(found, numbers, strict=True) if number in ready]


def _fileno_of(source: HasFileno) -> int:
    fileno = getattr(source, "fileno", None)
    if not callable(fileno):
        raise InvalidRequest(f"select waits for channels, services, watches and objects with a fileno(), not for {type(source).__name__}")
    number: int = fileno()
    return number


autograph.mark_module(__name__)
