# SPDX-License-Identifier: Apache-2.0
"""NodeBroker: the actor of a node that receives the shares of other nodes, once for all processes of the node.

A pull, on the node that reads (R), of a share of another node (S):
    1. a task calls pull at R's actor; tasks that want the same share wait for the same pull
    2. R's actor calls offer at S's, which notes that R reads the share, watches its broker's withdrawals, and names a node
       that has the share and is sending it to few others: S itself, or one that has a replica. So a share that many nodes
       want spreads over all of them, and not over the network of S alone (`ray_source`)
    3. R's actor calls read at that node's; Ray's object store moves the bytes, piece after piece; R publishes them as a
       replica, without a name, and calls moved at S's
    4. R waits in a call of S's `ended`: the answer names the shares that have ended, whose replicas R withdraws. If S's
       actor, its broker or its node is lost, R withdraws all that came from there.
Replicas end with R's actor, because they have no names.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.broker.replica import ReplicaWriter, broker_of, contents_of, run_of
from arraybridge.broker.share import Record, Share, record_from
from arraybridge.errors import BrokerError, BrokerUnavailable, InvalidRequest, ShareNotFound
from arraybridge.integrations.ray_nixl import Lent, Mover
from arraybridge.integrations.ray_source import Key, Source, key_of

_NAMESPACE: Final = "arraybridge"  # Ray's, of the node brokers
_PATIENCE_S: Final = 5.0  # with a node broker that does not answer: a killed one is back within a second or two
_PIECE_BYTES: Final = 32 << 20
_PIECES_MAX: Final = 4  # of one move, in the object stores
_PLACERS_MAX: Final = 64  # replicas that wait for room in the broker
_CALLS_MAX: Final = 100_000  # at a time; each reading node has one of `ended`, which waits
_AGAIN_S: Final = 5.0  # between two tries to withdraw a replica
_lock = threading.Lock()
_nodes: dict[tuple[str, str], Any] = {}  # handles of node brokers, by session of Ray and node


class _Replica(NamedTuple):
    share: Share
    source: str  # the node that published it


class NodeBroker:
    """One actor for each node; its callers are `arraybridge.integrations.ray` and the NodeBrokers of other nodes."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._me = uuid.uuid4().hex  # of this life of the actor: the replicas of an earlier one ended with it
        self._source = Source(node)
        self._replicas: dict[Key, _Replica] = {}
        self._pulls: dict[Key, asyncio.Task[Share]] = {}
        self._ended_early: set[Key] = set()  # of shares that are being pulled
        self._followed: dict[str, asyncio.Task[None]] = {}  # by source
        self._placers = ThreadPoolExecutor(_PLACERS_MAX, "arraybridge-place")  # of its own: they may wait for a long time
        self._background: set[asyncio.Task[None]] = set()
        self._mover: Mover | None = None
        self._moved = self._sent = 0

    async def address(self) -> str:
        """The address of this node's broker."""
        return await asyncio.to_thread(lambda: broker_of("default").address)

    async def counts(self) -> dict[str, int]:
        """pulls: shares that were moved to this node; sent: those that were moved from it; replicas: those that it has;
        readers: nodes that read its shares; copies: shares of it that others read.
        """
        numbers = {"pulls": self._moved, "sent": self._sent, "replicas": len(self._replicas)}
        return {**numbers, **self._source.counts}

    async def pull(self, fields: tuple[Any, ...], source: str, here: bytes, stale: tuple[bytes, int] | None) -> Share:
        """The replica of a share of node `source`.

        Args:
            here: the run of the caller's broker.
            stale: run and id of a replica that the caller found to have ended.
        """
        record = record_from(fields)
        broker = broker_of(record.namespace)
        if await asyncio.to_thread(run_of, broker) != here:
            what = f"this process has another broker than the node broker of its node, which is at {broker.latest_address}"
            raise InvalidRequest(
                f"{what}: set $ARRAYBRIDGE_ADDRESS for the node, not in a runtime_env; then call arraybridge.integrations.ray.stop()"
            )
        key = key_of(record)
        known = self._replicas.get(key)
        if known is not None and (known.share.broker_id, known.share.id) != stale:
            return known.share
        task = self._pulls.get(key)
        if task is None:
            task = self._pulls[key] = asyncio.ensure_future(self._pulled(key, record, source))
            task.add_done_callback(lambda _: self._pulls.pop(key, None))
        return await asyncio.shield(task)

    async def offer(self, fields: tuple[Any, ...], reader: str, reader_node: str) -> str:
        """The node from which a share of this one is to be read next."""
        return await self._source.offer(record_from(fields), reader, reader_node)

    async def moved(self, key: Key, reader_node: str, has: bool, lacking: str) -> None:
        """A reader has a share of this node, or has not got it. lacking: a node that turned out to have none."""
        self._source.moved(key, reader_node, has, lacking)

    async def ended(self, reader: str) -> list[Key] | None:
        """Which shares of this node that a reader has read have ended; None: that is not known any more."""
        return await self._source.ended(reader)

    async def read(self, fields: tuple[Any, ...]) -> AsyncIterator[Any]:
        """The bytes of a share, or of a replica, of this node, for another one: arrays of uint8, in pieces that Ray's object
        stores have room for, also where the share is larger than they are.
        """
        for part in await self._parts_of(fields):
            for first in range(0, part.nbytes, _PIECE_BYTES):
                yield part[first : first + _PIECE_BYTES]

    async def lend(self, fields: tuple[Any, ...], ticket: str) -> Lent:
        """The same for NIXL: another node may read them until `take_back`."""
        return (await self._nixl()).lend(ticket, await self._parts_of(fields))

    async def take_back(self, ticket: str) -> None:
        """Ends a `lend`."""
        (await self._nixl()).end(ticket)

    async def _parts_of(self, fields: tuple[Any, ...]) -> list[Any]:
        record = record_from(fields)
        replica = self._replicas.get(key_of(record))
        if replica is None:
            await self._source.check_here(record)
        share = Share(broker_of(record.namespace), record) if replica is None else replica.share
        self._sent += 1
        return (await asyncio.to_thread(contents_of, share)).parts

    async def _pulled(self, key: Key, record: Record, source: str) -> Share:
        try:
            share = await self._moved_from(record, source)
            if key in self._ended_early:
                self._withdraw(share)
                raise ShareNotFound(f"share {record.name!r} ended while it was moved from node {source}", code=5)
        finally:
            self._ended_early.discard(key)
        stale, self._replicas[key] = self._replicas.get(key), _Replica(share, source)
        if stale is not None:
            self._withdraw(stale.share)
        self._moved += 1
        return share

    async def _moved_from(self, record: Record, source: str) -> Share:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            failure = None
            try:
                return await self._moved_once(record, source)
            except ensure_module("ray.exceptions").RayError as error:
                failure = _meaning(error, record, source)
            # Outside of the except clause: the frames of an error that has the other as its context keep what they hold.
            if not isinstance(failure, BrokerUnavailable) or time.monotonic() > deadline:
                try:
                    raise failure
                finally:
                    del failure
            del failure
            await asyncio.sleep(0.2)

    async def _moved_once(self, record: Record, source: str) -> Share:
        """Moves a share from the nodes that its source names, until one has it."""
        errors: Any = ensure_module("ray.exceptions")
        handle = node_broker(source)
        while True:
            # Ray itself would repeat a call until it calls the node dead, which takes 15 s.
            node = await handle.offer.options(max_task_retries=0).remote(tuple(record), self._me, self._node)
            follow = self._followed.get(source)
            if follow is None:
                follow = self._followed[source] = asyncio.ensure_future(self._follow(source))
            share, lacking = None, ""
            try:
                share = await self._received(record, node)
            except errors.RayError:
                if node == source:
                    raise
                lacking = node
                forget_node_broker(node)
            finally:
                with contextlib.suppress(errors.RayError):  # if the source is lost, so is its list
                    report = key_of(record), self._node, share is not None, lacking
                    await handle.moved.options(max_task_retries=0).remote(*report)
            if share is not None and self._followed.get(source) is follow:
                return share
            if share is not None:  # nobody would tell of its end
                self._withdraw(share)

    async def _received(self, record: Record, node: str) -> Share:
        broker, fields = broker_of(record.namespace), tuple(record)
        writer = await asyncio.get_running_loop().run_in_executor(self._placers, ReplicaWriter, broker, fields)
        if mover() == "nixl":
            await self._read_by_nixl(record, node, writer)
            return await asyncio.to_thread(writer.publish)
        read = node_broker(node).read.options(num_returns="streaming", max_task_retries=0, _generator_backpressure_num_objects=_PIECES_MAX)
        async for piece in read.remote(fields):
            await asyncio.to_thread(writer.write, await piece)
        return await asyncio.to_thread(writer.publish)

    async def _read_by_nixl(self, record: Record, node: str, writer: ReplicaWriter) -> None:
        handle, ticket = node_broker(node), uuid.uuid4().hex
        lent = await handle.lend.options(max_task_retries=0).remote(tuple(record), ticket)
        try:
            await asyncio.to_thread((await self._nixl()).read, lent, writer.unfilled())
        finally:
            with contextlib.suppress(ensure_module("ray.exceptions").RayError):
                await handle.take_back.options(max_task_retries=0).remote(ticket)

    async def _nixl(self) -> Mover:
        if self._mover is None:
            self._mover = await asyncio.to_thread(Mover)
        return self._mover

    async def _follow(self, source: str) -> None:
        """Withdraws the replicas of a source's shares as they end there, and all of them when the source is lost."""
        try:
            handle = node_broker(source)
            with contextlib.suppress(ensure_module("ray.exceptions").RayError):
                while (ended := await handle.ended.options(max_task_retries=0).remote(self._me)) is not None:
                    for key in ended:
                        if key in self._pulls:
                            self._ended_early.add(key)
                        self._drop(key)
        finally:
            del self._followed[source]
            for key in [key for key, replica in self._replicas.items() if replica.source == source]:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        replica = self._replicas.pop(key, None)
        if replica is not None:
            self._withdraw(replica.share)

    def _withdraw(self, share: Share) -> None:
        self._run(_withdrawn(share))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)  # the event loop has weak references
        task.add_done_callback(self._background.discard)


async def _withdrawn(share: Share) -> None:
    """Withdraws a share; again and again while its broker does not answer."""
    while True:
        try:
            return await asyncio.to_thread(share.withdraw)
        except ShareNotFound:
            return None
        except BrokerError:
            await asyncio.sleep(_AGAIN_S)


def _meaning(error: Any, record: Record, node: str) -> Exception:
    """The error to raise for one of Ray's that a move has met."""
    errors: Any = ensure_module("ray.exceptions")
    if isinstance(error, errors.RayTaskError):
        return error.cause if isinstance(error.cause, BrokerError) else error
    name = f"share {record.name!r}"
    if isinstance(error, errors.ActorUnavailableError):
        what = f"{name} is on node {node}, which does not answer: call again, or put the array again if the node is gone"
        return BrokerUnavailable(f"{what} ({type(error).__name__})", code=14)
    forget_node_broker(node)
    if isinstance(error, errors.RayActorError) and is_alive(node):
        return BrokerUnavailable(f"{name} is on node {node}, whose node broker was ended: call again", code=14)
    return ShareNotFound(f"{name} is lost with node {node}: put the array again ({type(error).__name__})", code=5)


def this_node() -> str:
    """Ray's id of the node that this process is on."""
    ray: Any = ensure_module("ray")
    return str(ray.get_runtime_context().get_node_id())


def mover() -> str:
    """The word of $ARRAYBRIDGE_MOVER on this node: "store", which is the default, or "nixl".

    Raises:
        InvalidRequest: another word.
    """
    word = os.environ.get("ARRAYBRIDGE_MOVER") or "store"
    if word not in ("store", "nixl"):
        raise InvalidRequest(f"ARRAYBRIDGE_MOVER is {word!r} on node {this_node()}: it may be store or nixl")
    return word


def node_broker(node: str) -> Any:
    """The handle of a node's NodeBroker, which is made if there is none."""
    ray: Any = ensure_module("ray")
    key = session(), node
    with _lock:
        if key in _nodes:
            return _nodes[key]
    strategies: Any = ensure_module("ray.util.scheduling_strategies")
    there = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    actor = ray.remote(num_cpus=0)(NodeBroker).options(
        name=_name_of(node), namespace=_NAMESPACE, lifetime="detached", get_if_exists=True, max_restarts=-1,
        max_task_retries=-1, max_concurrency=_CALLS_MAX, scheduling_strategy=there,
    )  # fmt: skip
    with _lock:
        return _nodes.setdefault(key, actor.remote(node))


def end_node_broker(node: str) -> None:
    """Ends a node's NodeBroker, if there is one."""
    ray: Any = ensure_module("ray")
    with contextlib.suppress(ValueError):
        ray.kill(ray.get_actor(_name_of(node), _NAMESPACE))
    forget_node_broker(node)


def forget_node_broker(node: str) -> None:
    """Forgets the handle of a node's NodeBroker, which has ended."""
    with _lock:
        for key in [key for key in _nodes if key[1] == node]:
            del _nodes[key]


def is_alive(node: str) -> bool:
    """Whether Ray takes the node for alive, which it does for some seconds after its end."""
    return any(each["NodeID"] == node and each["Alive"] for each in ensure_module("ray").nodes())


def session() -> str:
    """Identifies this process's connection to Ray: another one after ray.shutdown and ray.init."""
    context: Any = ensure_module("ray").get_runtime_context()
    # A local cluster counts its jobs from 1 again, but its node has another id.
    return f"{context.get_job_id()} {context.get_node_id()}"


def _name_of(node: str) -> str:
    return f"arraybridge-{node}"


autograph.mark_module(__name__)
