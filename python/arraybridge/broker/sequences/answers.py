# SPDX-License-Identifier: Apache-2.0
"""Answers iterates over the items of one answer of a service."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any, Final, Self

from arraybridge import autograph
from arraybridge.broker.delivery import Acquired, Wanted
from arraybridge.broker.sequences.call import SequenceCall
from arraybridge.broker.services.caller import Caller
from arraybridge.broker.worker import waitable

_END: Final = object()


class Answers(Iterator[Any], AsyncIterator[Any]):
    """Made by `Broker.call(stream=True)`. One thread, or task, at a time. If it is dropped or closed before its end, the server
    sees `Request.cancelled`.
    """

    def __init__(self, caller: Caller, call: SequenceCall, granted: Callable[[Acquired, Wanted, bool], Any]) -> None:
        self._caller = caller
        self._call: SequenceCall | None = call
        self._granted = granted
        caller.may_drop()
        self._end = weakref.finalize(self, caller.drop, call)
        self._end.atexit = False  # the server is told by the end of the process

    def __iter__(self) -> Answers:
        return self

    def __aiter__(self) -> Answers:
        return self

    def __next__(self) -> Any:
        """Raises:
        ServerGone, RequestFailed, BrokerTimeout, BrokerUnavailable: as `Broker.call`, after the items that were sent before.
        """
        coming = self._coming()
        if coming is not None:
            wait([coming])
        item = self._taken(coming)
        if item is _END:
            raise StopIteration
        return item

    async def __anext__(self) -> Any:
        """`__next__` for an event loop. An item that arrives for a cancelled task is kept for the next call."""
        coming = self._coming()
        if coming is not None:
            await asyncio.wait({waitable(coming)})
        item = self._taken(coming)
        if item is _END:
            raise StopAsyncIteration
        return item

    def close(self) -> None:
        """Takes no more; the server sees `Request.cancelled`. Idempotent."""
        self._call = None
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _coming(self) -> Future[Acquired | None] | None:
        return None if self._call is None else self._call.coming()

    def _taken(self, coming: Future[Acquired | None] | None) -> Any:
        """The item of `coming`, in its form; _END: there is none."""
        call = self._call
        if call is None or coming is None:
            return _END
        error = coming.exception()
        message = None if error is not None else coming.result()
        if message is None:
            self._call = None
            self._end.detach()
            if error is not None:
                raise error
            return _END
        room = call.take()
        if room:
            self._caller.make_room(call, room)
        return self._granted(message, call.wanted, False)


autograph.mark_module(__name__)
