# SPDX-License-Identifier: Apache-2.0
"""Ray: arrays that all tasks and actors of a node map without a copy, and that are moved once to each other node.

Ray schedules, counts references and moves bytes between nodes; the broker of each node has the arrays. Written against Ray
2.60.

    import arraybridge.integrations.ray as abr
    share = abr.put(array)              # in the driver, a task or an actor; copied once, not at all if born in the broker
    ray.get(use.remote(share))          # use: share.get("torch"), on whatever node it runs

A process finds the broker of its node as `arraybridge.Broker()` does; without one it starts one. An actor on each node,
its *node broker*, receives what comes from other nodes, and publishes it there as a replica.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.broker.replica import FarShare, T, broker_of, forward_of, published, run_of
from arraybridge.broker.share import Record, Share as LocalShare, record_from, record_of
from arraybridge.errors import BrokerError, BrokerUnavailable, InvalidRequest, ShareNotFound
from arraybridge.integrations.ray_node import end_node_broker, forget_node_broker, mover, node_broker, session, this_node
from arraybridge.integrations.ray_source import Key, key_of
from arraybridge.planner import Converted

_TICK_S: Final = 2.0  # between two looks whether this process is still connected, and tries to withdraw
_lock = threading.Lock()


class Share(FarShare):
    """An array, a tree of arrays or a bundle in the broker of one node, for the whole cluster. A value, which holds no memory.

    Pass it in arguments, in results, and inside of other objects. Ray counts it as it counts an ObjectRef: when the last
    one in the cluster is gone, the share is withdrawn, and its memory is free when no array that was made of it is left.
    If the process that published it is killed, the share ends after `orphan_grace` of its namespace (60 s).
    """

    __slots__ = ("__weakref__", "_anchor", "_local", "_node", "_record")
    _record: Record

    def __init__(self, record: Record, node: str, anchor: Any) -> None:
        self._record = record
        self._node = node
        self._anchor = anchor  # an ObjectRef, whose count is the share's; None: nobody counts it
        self._local: LocalShare | None = None

    @property
    def node(self) -> str:
        """Ray's id of the node that has the array."""
        return self._node

    @property
    def name(self) -> str:
        return self._record.name

    def get(self, framework: str = "numpy", **wishes: Any) -> Any:
        """The array, or tree of arrays, of a framework.

        On the node that has it: without a copy, as `Broker.get`. On any other: the first call on that node moves the bytes
        there, and all processes of the node map this one replica.

        Args:
            wishes: of `Broker.get`: access, copy, require, device, allow_downcast, explain, types. `explain=True` tells in the
                plan's notes how many bytes were moved.

        Raises:
            ShareNotFound: the share has ended, or its node has. OutOfMemory: this node's broker has no room for a replica.
            UnsupportedArray: it lies on a GPU of another node. Other errors of `Broker.get`.
        """
        found = self._used(lambda share: share.to(framework, **wishes))
        if isinstance(found, Converted) and self._is_replica():
            by = {"store": "Ray's object store", "nixl": "NIXL"}[mover()]
            moved = f"{self.nbytes} bytes of node {self._node} moved once to this one by {by}"
            return Converted(found.array, dataclasses.replace(found.plan, notes=(*found.plan.notes, moved)))
        return found

    def local(self) -> LocalShare:
        """The share in this node's broker, for all that arraybridge does with one: the published one, or the replica.

        Raises:
            As `get`.
        """
        if self._local is None:
            broker = broker_of(self._record.namespace)
            is_here = run_of(broker) == self._record.broker_id
            self._local = LocalShare(broker, self._record) if is_here else self._pulled(None)
        return self._local

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"<Share {self.name!r}: {self._arrays_text()} on node {self._node}, {self.nbytes} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (tuple(self._record), self._node, self._anchor)

    def _key(self) -> Key:
        return key_of(self._record)

    def _is_replica(self) -> bool:
        return self._local is not None and self._local.broker_id != self._record.broker_id

    def _used(self, use: Callable[[LocalShare], T]) -> T:
        """use(local share), with a new replica if the one before ended with this node's broker or its node broker."""
        share = self.local()
        try:
            return use(share)
        except ShareNotFound:
            if not self._is_replica():
                raise
        self._local = None
        self._local = self._pulled((share.broker_id, share.id))
        return use(self._local)

    def _pulled(self, stale: tuple[bytes, int] | None) -> LocalShare:
        ray: Any = ensure_module("ray")
        if not ray.is_initialized():
            what = f"share {self.name!r} is on node {self._node} of a Ray cluster, which this process is not connected to"
            raise BrokerUnavailable(f"{what}: call ray.init()", code=14)
        here, run = this_node(), run_of(broker_of(self._record.namespace))
        for is_last in (False, True):
            failure: Exception
            try:
                replica: LocalShare = ray.get(node_broker(here).pull.remote(tuple(self._record), self._node, run, stale))
                return replica
            except ray.exceptions.RayTaskError as error:
                failure = error.cause if isinstance(error.cause, BrokerError) else error
            except ray.exceptions.RayActorError as error:
                forget_node_broker(here)
                if not is_last:
                    continue
                what = f"the node broker of this node ({here}) ended while it moved share {self.name!r}"
                failure = BrokerUnavailable(f"{what}: call again ({type(error).__name__})", code=14)
            break
        # Outside of the except clause: an error that has Ray's as its context would be a cycle, which keeps this Share.
        try:
            raise failure
        finally:
            del failure


def put(array: Any, *, namespace: str = "default", metadata: bytes | None = None) -> Share:
    """Publishes an array, a tree of arrays or a filled bundle in this node's broker, for the cluster.

    Args:
        array: as in `Broker.put`: copied once; an array that was born in broker memory (`empty`) is not copied and must not
            be written any more. Or the BundleWriter of `Broker.bundle(None, ...)`.
        namespace: of the broker, on all nodes.
        metadata: bytes of your own.

    Raises:
        BrokerUnavailable: this node has no broker, and none may be started. Other errors of `Broker.put`.

    Example:
        >>> share = abr.put(np.ones((2, 3)))
        >>> ray.get(ray.remote(lambda share: share.get("torch").sum().item()).remote(share))
        6.0
    """
    withdrawals = _withdrawals()  # before anything is published
    return _counted(withdrawals, published(broker_of(namespace), array, metadata))


def empty(shape: int | Sequence[int], dtype: Any, framework: str = "numpy", *, namespace: str = "default") -> Any:
    """A writable array in the memory of this node's broker, as `Broker.empty`: `put` publishes it without a copy."""
    return broker_of(namespace).empty(shape, dtype, framework)


def share_of(share: LocalShare) -> Share:
    """The bytes of a share of this node's broker, for the cluster, without a copy. The given share stays as it is.

    Raises:
        InvalidRequest: it is no share, or one of another broker. ShareNotFound: it has ended.
    """
    if not isinstance(share, LocalShare):
        raise InvalidRequest(f"share_of takes a Share of Broker.put, not {type(share).__name__}; put takes arrays")
    if run_of(broker_of(share.namespace)) != share.broker_id:
        raise InvalidRequest(
            f"share {share.name!r} is not in the broker of this node: put its array here, or pass the address by $ARRAYBRIDGE_ADDRESS"
        )
    return _counted(_withdrawals(), forward_of(share))


def near(share: Share) -> Any:
    """A scheduling strategy for tasks and actors that read this share: its node, or another one if that has no room.

    Example:
        >>> task = ray.remote(lambda share: share.get().nbytes)
        >>> ray.get(task.options(scheduling_strategy=abr.near(share)).remote(share))
        48
    """
    if not isinstance(share, Share):
        raise InvalidRequest(f"near takes a Share of arraybridge.integrations.ray, not {type(share).__name__}")
    strategies: Any = ensure_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(share.node, soft=True)


def start() -> dict[str, str]:
    """Starts the node broker of each node. A node that comes later starts its own when it is first needed.

    Returns:
        The broker's address on each node, by Ray's node id.

    Raises:
        BrokerUnavailable: a node has no broker and may not start one, or does not answer.
    """
    ray: Any = ensure_module("ray")
    found: dict[str, str] = {}
    for node in [each["NodeID"] for each in ray.nodes() if each["Alive"]]:
        for is_last in (False, True):  # the handle may be of a node broker that another driver has stopped
            try:
                found[node] = ray.get(node_broker(node).address.remote())
                break
            except ray.exceptions.RayError as error:
                forget_node_broker(node)
                if is_last or isinstance(error, ray.exceptions.RayTaskError):
                    raise BrokerUnavailable(f"node {node} has no broker: {getattr(error, 'cause', None) or error}", code=14) from None
    return found


def stop() -> None:
    """Ends the node brokers, which outlive the drivers, and the replicas that they have. Arrays stay."""
    ray: Any = ensure_module("ray")
    for node in [each["NodeID"] for each in ray.nodes()]:
        end_node_broker(node)


def register() -> None:
    """Registers the tensor transport "arraybridge" of Ray Direct Transport, for tensors of torch on CPUs; again is no error.

    Call it before a class names the transport, and in every worker:

        abr.register()
        ray.init(runtime_env={"worker_process_setup_hook": "arraybridge.integrations.ray.register"})

        @ray.remote(enable_tensor_transport=True)
        class Producer:
            @ray.method(tensor_transport="arraybridge")
            def batch(self): ...
    """
    ensure_module("arraybridge.integrations.ray_transport")


def _arrived(record: tuple[Any, ...], node: str, anchor: Any) -> Share:
    # Uses no broker: Ray unpickles arguments and results in processes that only pass them on.
    return Share(record_from(record), node, anchor)


def _counted(withdrawals: _Withdrawals, share: LocalShare) -> Share:
    """A share that this process has published, counted by Ray from now on."""
    try:
        return Share(record_of(share), this_node(), withdrawals.follow(share))
    except BaseException:
        share.withdraw()
        raise


class _Withdrawals:
    """Withdraws the shares of this process whose anchors are out of scope in the cluster, or when it has left the cluster.

    Ray calls back in a thread of its core worker, which must not wait for a broker, so a thread of its own withdraws.

    Raises:
        InvalidRequest: this Ray does not tell when an object is out of scope.
    """

    def __init__(self, of: str) -> None:
        if _when_out_of_scope() is None:
            version = getattr(ensure_module("ray"), "__version__", "?")
            raise InvalidRequest(f"Ray {version} does not tell when an object is out of scope: install Ray 2.60")
        self.session = of
        self._shares: dict[bytes, LocalShare] = {}
        self._ended: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="arraybridge-ray", daemon=True).start()

    def follow(self, share: LocalShare) -> Any:
        """The anchor of a share: an ObjectRef without a value."""
        anchor = ensure_module("ray").put(None)
        self._shares[anchor.binary()] = share
        if not _when_out_of_scope()(anchor, self._ended.put):
            self._ended.put(anchor.binary())
        return anchor

    def _run(self) -> None:
        late: list[LocalShare] = []  # their broker did not answer
        while True:
            with contextlib.suppress(queue.Empty):
                share = self._shares.pop(self._ended.get(timeout=_TICK_S), None)
                if share is not None and not _withdrawn(share):
                    late.append(share)
                continue
            late = [share for share in late if not _withdrawn(share)]
            if not _is_in(self.session):
                late = [share for share in [*late, *self._shares.values()] if not _withdrawn(share)]
                self._shares.clear()
                if not late:
                    return


def _when_out_of_scope() -> Any:
    """Ray's function that registers a callback for the end of an object; None: this Ray has none."""
    worker: Any = ensure_module("ray._private.worker").global_worker.core_worker
    return getattr(worker, "add_object_out_of_scope_callback", None)


def _withdrawn(share: LocalShare) -> bool:
    """Withdraws a share. False: its broker does not answer."""
    try:
        share.withdraw()
    except ShareNotFound:
        return True
    except BrokerError:
        return False
    return True


def _is_in(of: str) -> bool:
    return bool(ensure_module("ray").is_initialized()) and session() == of


_current: _Withdrawals | None = None


def _withdrawals() -> _Withdrawals:
    """The Withdrawals of this process's connection to Ray, which is made if there is none."""
    global _current
    ray: Any = ensure_module("ray")
    if not ray.is_initialized():
        ray.init()
    now = session()
    with _lock:
        if _current is None or _current.session != now:
            _current = _Withdrawals(now)
        return _current


autograph.mark_module(__name__)
