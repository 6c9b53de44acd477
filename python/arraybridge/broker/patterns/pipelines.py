# SPDX-License-Identifier: Apache-2.0
"""Pipelines is the part of a Broker that opens channels, and that serves event loops."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast

from arraybridge import _core, autograph
from arraybridge.arguments import GetWishes
from arraybridge.broker.channel import Channel, OnPeerDeath
from arraybridge.broker.message import exported
from arraybridge.broker.patterns.calls import Calls, awaited
from arraybridge.broker.patterns.terms import Mode, OnSlow, Terms
from arraybridge.broker.publication import Publication
from arraybridge.broker.services.asking import Asking
from arraybridge.broker.share import Share
from arraybridge.errors import BrokerError

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker
    from arraybridge.broker.bundle import Bundle

T = TypeVar("T")


class PutWishes(TypedDict, total=False):
    """Arguments of `Broker.put`."""

    replace: bool
    sealed: bool
    metadata: Any
    lifetime: float | None
    keep_writing: bool


class AGetWishes(GetWishes, total=False):
    """Arguments of `Broker.get`."""

    info: bool
    explain: bool


def _ready(publication: Publication) -> Publication:
    """It with exports of its arrays, which are ordered after the work of the calling thread's streams."""
    return publication._replace(sources=[exported(source) for source in publication.sources])


class Pipelines(Asking):
    """The base class of Broker."""

    _calls: Calls | None = None
    _calls_of: int = 0  # the process

    async def aput(self, array: Any, name: str | None = None, **wishes: Unpack[PutWishes]) -> Share:
        """`put` for an event loop: the copy, and the wait for room, are on a thread. The array must not be written before it returns.

        Args:
            wishes: replace, sealed, metadata, lifetime and keep_writing of `put`.

        Raises:
            CallCancelled: the task was cancelled; its `outcome` says whether the share exists. Errors of `put`.

        Example:
            >>> import asyncio
            >>> share = asyncio.run(broker.aput(np.ones(3), "frame"))
            >>> asyncio.run(broker.aget("frame")).tolist()
            [1.0, 1.0, 1.0]
        """
        ready = _ready(Publication.of(array, name, **wishes))
        return Share(cast("Broker", self), cast(_core.ShareInfo, await self._awaited(lambda: ready.entered(self._connection))))

    async def aput_many(self, arrays: Mapping[str, Any], *, replace: bool = False) -> None:
        """`put_many` for an event loop. The arrays must not be written before it returns.

        Raises:
            CallCancelled: the task was cancelled; what was put before stays. Errors of `put_many`.

        Example:
            >>> import asyncio
            >>> asyncio.run(broker.aput_many({"left": np.zeros(3), "right": np.ones(3)}))
            >>> [each.tolist() for each in asyncio.run(broker.aget_many(["left", "right"]))]
            [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
        """
        ready = [_ready(Publication.of(array, name, replace, waits=False)) for name, array in arrays.items()]
        await self._awaited(lambda: self._put_all((lambda: each.entered(self._connection)) for each in ready))

    def _put_all(self, puts: Iterable[Callable[[], object]], wait: bool = True) -> None:
        """Puts without waiting, until an error is known."""
        try:
            for put in puts:
                put()
        except BrokerError as error:
            self._connection.confirm_after(error)
        if wait:
            self._connection.confirm()

    async def aget(self, name: str | Share, framework: str = "numpy", **wishes: Unpack[AGetWishes]) -> Any:
        """`get` for an event loop: the wait for a name is on a thread, of which 32 wait at a time.

        Args:
            wishes: of `get`.

        Raises:
            CallCancelled: the task was cancelled; nothing is left of the call. Errors of `get`.

        Example:
            >>> import asyncio
            >>> async def both():
            ...     waiting = asyncio.create_task(broker.aget("late", wait=10))
            ...     await broker.aput(np.arange(3), "late")
            ...     return await waiting
            >>> asyncio.run(both()).tolist()
            [0, 1, 2]
        """
        return await self._awaited(lambda: cast("Broker", self).get(name, framework, **wishes))

    async def aget_many(self, names: Sequence[str | Share], framework: str = "numpy", **wishes: Any) -> Any:
        """`get_many` for an event loop, as `aget`.

        Raises:
            CallCancelled: the task was cancelled; nothing is left of the call. Errors of `get_many`.
        """
        return await self._awaited(lambda: cast("Broker", self).get_many(names, framework, **wishes))

    async def aopen(self, name: str | Share, *, wait: float | None = None, newer_than: int | Share | None = None) -> Bundle:
        """`open` for an event loop, as `aget`.

        Raises:
            CallCancelled: the task was cancelled; nothing is left of the call. Errors of `open`.

        Example:
            >>> import asyncio
            >>> share = broker.bundle("net", {"weight": np.ones((2, 3))}).fill().publish()
            >>> sorted(asyncio.run(broker.aopen("net", wait=10)))
            ['weight']
        """
        return await self._awaited(lambda: cast("Broker", self).open(name, wait=wait, newer_than=newer_than))

    async def acached(self, name: str, make: Callable[[], Any], framework: str = "numpy", **wishes: Any) -> Any:
        """`cached` for an event loop: `make` is called on a thread, not as a coroutine.

        Raises:
            CallCancelled: the task was cancelled; its `outcome` has the result when `make` has ended. Errors of `cached`.

        Example:
            >>> import asyncio
            >>> asyncio.run(broker.acached("squares", lambda: np.arange(4) ** 2)).tolist()
            [0, 1, 4, 9]
        """
        return await self._awaited(lambda: self.cached(name, make, framework, **wishes))

    async def _awaited(self, call: Callable[[], T]) -> T:
        if self._calls is None or self._calls_of != os.getpid():  # a forked child has no threads yet
            self._calls, self._calls_of = Calls(), os.getpid()
            weakref.finalize(self, self._calls.stop)
        return await awaited(self._calls.submit(call))

    def channel(
        self,
        name: str,
        capacity: int | None = None,
        *,
        mode: Mode | None = None,
        on_slow: OnSlow | None = None,
        replay: int | None = None,
        on_peer_death: OnPeerDeath = "raise",
        run: str | None = None,
        fresh: bool = False,
    ) -> Channel:
        """A queue of arrays between processes, in the order of sending.

        Does not connect: the first `send` or `receive` does. Channels and shares have separate names. The first process
        that states a capacity, a mode, `on_slow` or `replay` determines it for all; None: as stated by others.

        Args:
            capacity: maximum number of queued arrays, or trees of arrays, in a broadcast for each receiver; a sender
                waits for room. None, and no other process states one: 16.
            mode: "queue": one receiver gets each array; "broadcast": each receiver that is open when it is sent; there is
                one copy of the bytes. "latest": each receiver gets the newest array, also one that comes late, and a
                sender never waits. None, and no other process states one: "queue".
            on_slow: in a broadcast: "block", a sender waits for the slowest receiver; "drop_oldest", a receiver with
                `capacity` arrays to receive misses the oldest. None, and no other process states one: "block".
            replay: in a broadcast: a receiver that opens gets so many of the last arrays first. None, and none is stated: 0.
            on_peer_death: "raise" raises PeerGone once when a sender, or the last receiver, is lost; "wait" goes on
                waiting for the peers that are left or come back, until the timeout of the call.
            run: tells this start of a pipeline from earlier ones: any text of at most 64 bytes, the same in each of its
                processes. A process that states it is never told that a stream of another run has ended, nor of
                another run's deaths. A process that states none belongs to the run that the channel is in.
            fresh: with `run`: the first process of the run that opens the channel drops the arrays that an earlier run left.

        Raises:
            InvalidRequest: not a name, or not one of these values, or they contradict each other.

        Example:
            >>> with broker.channel("frames") as frames:
            ...     frames.send(np.arange(3))
        """
        return Channel(cast("Broker", self), name, Terms(capacity, mode, on_slow, replay, run, fresh), on_peer_death)


autograph.mark_module(__name__)
