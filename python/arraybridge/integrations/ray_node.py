"""NodeBroker: the actor of a node that receives the shares of other nodes, once for all processes of the node.

A pull, on the node that reads (R), of a share of another node (S):
    1. a task calls pull at R's actor; tasks that want the same share wait for the same pull
    2. R's actor calls offer at S's, which notes that R reads the share, watches its broker's withdrawals, and names a node
       that has the share and is not sending it to _SENDS_MAX others: S itself, or one that has a replica. So a share that
       many nodes want spreads over all of them, and not over the network of S alone
    3. R's actor calls read at that node's; Ray's object store moves the bytes, piece after piece; R publishes them as a
       replica, without a name, and calls moved at S's
    4. R waits in a call of S's `ended`: the answer names the shares that have ended, whose replicas R withdraws. If S's
       actor, its broker or its node is lost, R withdraws all that came from there.
Replicas end with R's actor, because they have no names.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.arguments import check_text
from arraybridge.broker.broker import Broker
from arraybridge.broker.replica import ReplicaWriter, contents_of
from arraybridge.broker.share import Record, Share, record_from
from arraybridge.broker.watch import Watch
from arraybridge.errors import BrokerError, BrokerUnavailable, InvalidRequest, ShareNotFound
from arraybridge.integrations.ray_nixl import Lent, Mover

_NAMESPACE: Final = "arraybridge"  # Ray's, of the node brokers
Key = tuple[bytes, str, int]  # the run of a broker, a namespace, a share
POLL_S: Final = 20.0  # an `ended` call is answered within it
_PATIENCE_S: Final = 5.0  # with a node broker that does not answer: a killed one is back within a second or two
PIECE_BYTES: Final = 32 << 20
_PIECES_MAX: Final = 4  # of one share, in the object stores
_SENDS_MAX: Final = 2  # of one share at a time, for each node that has it
_OFFER_S: Final = 60.0  # that a reader waits while all of those are sending
_FORGOTTEN_S: Final = 6 * POLL_S  # a reader that has not called is gone
_lock = threading.Lock()
_brokers: dict[tuple[str, str | None], Broker] = {}  # by namespace and $ARRAYBRIDGE_ADDRESS
_nodes: dict[tuple[str, str], Any] = {}  # handles of node brokers, by job and node


class _Reader:
    """A node that reads shares of this one, and those that have ended since."""

    def __init__(self) -> None:
        self.shares: set[Key] = set()
        self.ended: list[Key] = []
        self.news = asyncio.Event()
        self.called = time.monotonic()

    def note(self, key: Key) -> None:
        if key in self.shares:
            self.shares.discard(key)
            self.ended.append(key)
            self.news.set()


class _Copies:
    """The nodes that have a share of this one, and to which readers each is sending it."""

    def __init__(self, node: str) -> None:
        self.sends: dict[str, set[str]] = {node: set()}
        self.changed = asyncio.Event()

    def free(self) -> str | None:
        """A node that may send it once more; the latest one, which has sent least."""
        node = min(reversed(self.sends), key=lambda node: len(self.sends[node]))
        return node if len(self.sends[node]) < _SENDS_MAX else None

    def ends(self, reader: str) -> None:
        """A reader has the share, or has given up."""
        for readers in self.sends.values():
            readers.discard(reader)
        self.changed.set()
        self.changed.clear()


class _Replica(NamedTuple):
    share: Share
    source: str  # the node that it came from


class NodeBroker:
    """One actor for each node; its callers are `arraybridge.integrations.ray` and the NodeBrokers of other nodes."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._me = uuid.uuid4().hex  # of this life of the actor: the replicas of an earlier one ended with it
        self._replicas: dict[Key, _Replica] = {}
        self._pulls: dict[Key, asyncio.Task[Share]] = {}
        self._ended_early: set[Key] = set()  # of shares that are being pulled
        self._followed: dict[str, asyncio.Task[None]] = {}  # by source
        self._readers: dict[str, _Reader] = {}
        self._copies: dict[Key, _Copies] = {}  # of this node's shares that others read
        self._watches: dict[str, asyncio.Task[None]] = {}  # by namespace
        self._watching = asyncio.Lock()
        self._mover: Mover | None = None
        self._moved = self._sent = 0

    async def address(self) -> str:
        """The address of this node's broker."""
        return await asyncio.to_thread(lambda: broker_of("default").address)

    async def counts(self) -> dict[str, int]:
        """pulls: shares that were moved to this node; sent: those that were moved from it; replicas: those that it has;
        readers: nodes that read its shares.
        """
        numbers = {"pulls": self._moved, "sent": self._sent, "replicas": len(self._replicas), "readers": len(self._readers)}
        return {**numbers, "copies": len(self._copies)}

    async def pull(self, fields: tuple[Any, ...], source: str, stale: int) -> Share:
        """The replica of a share of node `source`. stale: the id of a replica that a caller found to have ended, or 0."""
        record = record_from(fields)
        key = _key_of(record)
        known = self._replicas.get(key)
        if known is not None and known.share.id != stale:
            return known.share
        task = self._pulls.get(key)
        if task is None:
            task = self._pulls[key] = asyncio.ensure_future(self._pulled(key, record, source))
            task.add_done_callback(lambda _: self._pulls.pop(key, None))
        return await asyncio.shield(task)

    async def offer(self, fields: tuple[Any, ...], reader: str) -> str:
        """The node from which a share of this one is to be read next."""
        record = record_from(fields)
        key = _key_of(record)
        await self._check_here(record)
        known = self._readers.setdefault(reader, _Reader())
        known.called = time.monotonic()
        known.shares.add(key)
        try:
            await asyncio.to_thread(contents_of, Share(broker_of(record.namespace), record))
        except BrokerError:
            known.shares.discard(key)
            raise
        copies = self._copies.setdefault(key, _Copies(self._node))
        deadline = known.called + _OFFER_S
        while (node := copies.free()) is None and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(copies.changed.wait(), left)
        copies.sends[node or self._node].add(reader)
        return node or self._node

    async def moved(self, key: Key, reader: str, node: str, lacking: str) -> None:
        """A reader has the share; node: its own, "" if it has not got it. lacking: a node that turned out to have none."""
        copies = self._copies.get(key)
        if copies is not None:
            if lacking != self._node:
                copies.sends.pop(lacking, None)
            if node:
                copies.sends.setdefault(node, set())
            copies.ends(reader)

    async def read(self, fields: tuple[Any, ...]) -> AsyncIterator[Any]:
        """The bytes of a share, or of a replica, of this node, for another one: arrays of uint8, in pieces that Ray's object
        stores have room for, also where the share is larger than they are.
        """
        for part in await self._parts_of(fields):
            for first in range(0, part.nbytes, PIECE_BYTES):
                yield part[first : first + PIECE_BYTES]

    async def lend(self, fields: tuple[Any, ...], ticket: str) -> Lent:
        """The same for NIXL: another node may read them until `take_back`."""
        return (await self._nixl()).lend(ticket, await self._parts_of(fields))

    async def take_back(self, ticket: str) -> None:
        """Ends a `lend`."""
        (await self._nixl()).end(ticket)

    async def _parts_of(self, fields: tuple[Any, ...]) -> list[Any]:
        record = record_from(fields)
        replica = self._replicas.get(_key_of(record))
        if replica is None:
            await self._check_here(record)
        share = Share(broker_of(record.namespace), record) if replica is None else replica.share
        self._sent += 1
        return (await asyncio.to_thread(contents_of, share)).parts

    async def ended(self, reader: str) -> list[Key] | None:
        """Which of the shares that a node has read have ended; after POLL_S none. None: that is not known any more."""
        known = self._readers.get(reader)
        if known is None:
            return None
        known.called = time.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(known.news.wait(), POLL_S)
        if self._readers.get(reader) is not known:
            return None
        ended, known.ended = known.ended, []
        known.news.clear()
        return ended

    async def _pulled(self, key: Key, record: Record, source: str) -> Share:
        try:
            share = await self._moved_from(record, source)
            if key in self._ended_early:
                await _withdraw(share)
                raise ShareNotFound(f"share {record.name!r} ended while it was moved from node {source}", code=5)
        finally:
            self._ended_early.discard(key)
        self._replicas[key] = _Replica(share, source)
        self._moved += 1
        return share

    async def _moved_from(self, record: Record, source: str) -> Share:
        errors: Any = ensure_module("ray.exceptions")
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return await self._moved_once(record, source)
            except errors.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, BrokerError) else error) from None
            except errors.ActorUnavailableError as error:
                if time.monotonic() > deadline:
                    what = f"share {record.name!r} is on node {source}, which does not answer"
                    raise BrokerUnavailable(f"{what}: call again, or put the array again if the node is gone ({error})", code=14) from None
            except (errors.RayError, ValueError) as error:
                what = f"share {record.name!r} is lost with node {source}: put the array again"
                raise ShareNotFound(f"{what} ({type(error).__name__})", code=5) from None
            await asyncio.sleep(0.2)

    async def _moved_once(self, record: Record, source: str) -> Share:
        """Moves a share from the nodes that its source names, until one has it."""
        errors: Any = ensure_module("ray.exceptions")
        handle = node_broker(source)
        while True:
            # Ray itself would repeat a call until it calls the node dead, which takes 15 s.
            node = await handle.offer.options(max_task_retries=0).remote(tuple(record), self._me)
            if source not in self._followed:
                self._followed[source] = asyncio.ensure_future(self._follow(source))
            share, lacking = None, ""
            try:
                share = await self._received(record, node)
            except (errors.RayError, ValueError):
                if node == source:
                    raise
                lacking = node
            finally:
                here = self._node if share is not None else ""
                with contextlib.suppress(errors.RayError):  # if the source is lost, _follow drops the replica
                    await handle.moved.options(max_task_retries=0).remote(_key_of(record), self._me, here, lacking)
            if share is not None:
                return share

    async def _received(self, record: Record, node: str) -> Share:
        writer = await asyncio.to_thread(ReplicaWriter, broker_of(record.namespace), tuple(record))
        if mover() == "nixl":
            await self._read_by_nixl(record, node, writer)
            return await asyncio.to_thread(writer.publish)
        read = node_broker(node).read.options(
            num_returns="streaming", max_task_retries=0, _generator_backpressure_num_objects=_PIECES_MAX
        )
        async for piece in read.remote(tuple(record)):
            await asyncio.to_thread(writer.write, await piece)
        return await asyncio.to_thread(writer.publish)

    async def _read_by_nixl(self, record: Record, node: str, writer: ReplicaWriter) -> None:
        handle, ticket = node_broker(node), uuid.uuid4().hex
        lent = await handle.lend.options(max_task_retries=0).remote(tuple(record), ticket)
        try:
            await asyncio.to_thread((await self._nixl()).read, lent, writer.rooms())
        finally:
            with contextlib.suppress(ensure_module("ray.exceptions").RayError):
                await handle.take_back.options(max_task_retries=0).remote(ticket)

    async def _nixl(self) -> Mover:
        if self._mover is None:
            self._mover = await asyncio.to_thread(Mover)
        return self._mover

    async def _follow(self, source: str) -> None:
        """Withdraws the replicas of a source's shares as they end there, and all of them when the source is lost."""
        ray: Any = ensure_module("ray")
        handle = node_broker(source)
        with contextlib.suppress(ray.exceptions.RayError):
            while (ended := await handle.ended.options(max_task_retries=0).remote(self._me)) is not None:
                for key in ended:
                    await self._drop(key)
        del self._followed[source]
        lost = [key for key, replica in self._replicas.items() if replica.source == source]
        for replica in [self._replicas.pop(key) for key in lost]:
            await _withdraw(replica.share)

    async def _drop(self, key: Key) -> None:
        if key in self._pulls:
            self._ended_early.add(key)
        replica = self._replicas.pop(key, None)
        if replica is not None:
            await _withdraw(replica.share)

    async def _check_here(self, record: Record) -> None:
        """Checks that a share is, or was, of this node's broker, and watches for the ends of its namespace's shares."""
        if await asyncio.to_thread(run_of, broker_of(record.namespace)) != record.broker_id:
            raise ShareNotFound(f"share {record.name!r} ended with its broker on node {self._node}", code=5)
        await self._watch(record.namespace, record.broker_id)

    async def _watch(self, namespace: str, run: bytes) -> None:
        async with self._watching:
            if namespace not in self._watches:
                watch = await asyncio.to_thread(broker_of(namespace).watch, "withdraw")
                self._watches[namespace] = asyncio.ensure_future(self._tell(watch, namespace, run))

    async def _tell(self, watch: Watch, namespace: str, run: bytes) -> None:
        """Notes for the readers which shares of a namespace end. If events are lost, the readers begin anew."""
        with contextlib.suppress(BrokerError):
            async with watch:
                async for event in watch:
                    key = run, namespace, event.share
                    self._copies.pop(key, None)
                    for reader in self._readers.values():
                        reader.note(key)
                    self._forget(time.monotonic() - _FORGOTTEN_S)
        del self._watches[namespace]
        self._copies.clear()
        self._forget(math.inf)

    def _forget(self, before: float) -> None:
        for me in [me for me, reader in self._readers.items() if reader.called < before]:
            self._readers.pop(me).news.set()
            for copies in self._copies.values():
                copies.ends(me)


def broker_of(namespace: str) -> Broker:
    """This process's Broker of a namespace, at the broker of this node."""
    if not isinstance(namespace, str):
        raise InvalidRequest(f"a namespace must be a non-empty str, not {namespace!r}")
    check_text(namespace, "a namespace")
    key = namespace, os.environ.get("ARRAYBRIDGE_ADDRESS")
    with _lock:
        broker = _brokers.get(key)
        if broker is None:
            broker = _brokers[key] = Broker(namespace=namespace)
    return broker


def run_of(broker: Broker) -> bytes:
    """The id of the broker and its run."""
    return bytes(broker._connection.ask(lambda core: core.server_info())["broker_id"])


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
    key = str(ray.get_runtime_context().get_job_id()), node
    with _lock:
        if key in _nodes:
            return _nodes[key]
    strategies: Any = ensure_module("ray.util.scheduling_strategies")
    there = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    actor = ray.remote(num_cpus=0)(NodeBroker).options(
        name=_name_of(node), namespace=_NAMESPACE, lifetime="detached", get_if_exists=True, max_restarts=-1,
        max_task_retries=-1, max_concurrency=1000, scheduling_strategy=there,
    )  # fmt: skip
    with _lock:
        return _nodes.setdefault(key, actor.remote(node))


def end_node_broker(node: str) -> None:
    """Ends a node's NodeBroker, if there is one."""
    ray: Any = ensure_module("ray")
    with contextlib.suppress(ValueError):
        ray.kill(ray.get_actor(_name_of(node), _NAMESPACE))
    with _lock:
        for key in [key for key in _nodes if key[1] == node]:
            del _nodes[key]


def _name_of(node: str) -> str:
    return f"arraybridge-{node}"


def _key_of(record: Record) -> Key:
    return record.broker_id, record.namespace, record.id


async def _withdraw(share: Share) -> None:
    with contextlib.suppress(BrokerError):  # it has ended, or its broker
        await asyncio.to_thread(share.withdraw)


autograph.mark_module(__name__)
