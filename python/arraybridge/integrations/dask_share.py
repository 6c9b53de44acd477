# SPDX-License-Identifier: Apache-2.0
"""The object that tasks return and that Dask keeps: a share of its own, for as long as it lives. Imported with distributed."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import queue
import threading
import weakref
from typing import Any, Final, NamedTuple

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.broker.broker import Broker
from arraybridge.broker.fork_lock import lock_of
from arraybridge.broker.replica import Contents, FarShare, broker_of, contents_of, forward_of, replica_of, run_of
from arraybridge.broker.share import Record, Share as LocalShare, record_from, record_of
from arraybridge.errors import BrokerError, InvalidRequest, ShareExists, ShareNotFound
from arraybridge.integrations import dask_peers as peers

Origin = tuple[bytes, str, int]  # run of a broker, namespace and id: of the share that was put; replicas keep it

_INDEX_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 5.0
_NOT_FOUND: Final = 5
_TYPES: Final[tuple[Any, ...]] = (
    int,
    bytes,
    str,
    str,
    int,
    (list, tuple),
    int,
    (list, tuple),
    str,
    bool,
    bytes,
    bytes,
    bool,
)  # of a Record


class Ticket(NamedTuple):
    """The reference to a Share that travels: a share of the sender, and a worker that has the bytes ("": none)."""

    record: Record
    origin: Origin
    worker: str

    @property
    def plain(self) -> tuple[Any, ...]:
        return tuple(self.record), self.origin, self.worker


def ticket_from(plain: Any) -> Ticket:
    """The Ticket of a message or pickle.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        fields, (run, namespace, id), worker = plain
        record = record_from(tuple(fields))
        facts = [*zip(record, _TYPES, strict=True), (run, bytes), (namespace, str), (id, int), (worker, str)]
        well_formed = all(isinstance(fact, kind) for fact, kind in facts) and all(len(array) == 5 for array in record.arrays)
    except (TypeError, ValueError):
        raise InvalidRequest(f"a ticket of a share has other fields than this version's: {_SAME}") from None
    if not well_formed:
        raise InvalidRequest(f"a ticket of a share has fields of wrong types: {_SAME}")
    return Ticket(record, (run, namespace, id), worker)


_SAME: Final = "install the same version of arraybridge in all processes of the cluster"


class Share(FarShare):
    """An array, a tree of arrays or a bundle in the broker of a host, as an object of Dask.

    Each object owns a share of its own in its host's broker, without a name; several of them on one host have the same
    bytes. It is withdrawn when Dask, or the user, drops the object; arrays that were made of it stay valid.

    To a process with the same broker goes a reference, to any other the bytes. An object that a client pickled, for instance
    inside the arguments of a task, refers to the share of its maker until it is first used here: the maker must have kept it
    until then.
    """

    __slots__ = ("__weakref__", "_frames", "_lock", "_own", "_ticket")

    def __init__(self, ticket: Ticket, own: LocalShare | None = None, frames: list[Any] | None = None) -> None:
        self._ticket = ticket
        self._own: LocalShare | None = None
        self._frames = frames  # the bytes that came with it, until they are published
        self._lock = threading.RLock()
        if own is not None:
            self._adopt(own)

    @property
    def _record(self) -> Record:
        return self._ticket.record

    def get(self, framework: str = "numpy", **wishes: Any) -> Any:
        """The array, or tree of arrays, of a framework, without a copy: as `Broker.get`, whose wishes it takes.

        Raises:
            ShareNotFound: the share has ended, with its maker or with the broker.
            BrokerUnavailable: this host has no broker; or the share is on another host, and no worker that has it answers.
            OutOfMemory: this host's broker has no room for a replica. Other errors of `Broker.get`.
        """
        return self.local().to(framework, **wishes)

    def local(self) -> LocalShare:
        """The share in this host's broker, for all that arraybridge does with one. It ends with this object.

        Raises:
            As `get`.
        """
        with self._lock:
            if not self._find():
                self._pull()
            assert self._own is not None
            return self._own

    def ticket(self) -> Ticket:
        """The reference to the share that this object has now."""
        worker = peers.own_worker()
        return self._ticket if worker is None or self._own is None else self._ticket._replace(worker=worker.address)

    @property
    def origin(self) -> Origin:
        """Identifies the bytes, on all hosts."""
        return self._ticket.origin

    @property
    def held(self) -> bool:
        """True if it has a share of its own; otherwise it refers to another's."""
        return self._own is not None

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return "arraybridge.Share", *self._ticket.origin

    def __copy__(self) -> Share:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Share:
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Dask pickles whole an object that contains a Share: a worker's results, which it then drops. They carry what `dump`
        # would send. A client pickles arguments, which carry a reference.
        recipient = peers.recipient.get()
        carries = peers.in_worker() if recipient is None else self._own is not None and recipient != self._own.broker_id
        parts = self._parts() if carries or self._frames is not None else None
        buffers = None if parts is None else [pickle.PickleBuffer(part) if protocol >= 5 else bytes(part) for part in parts]
        return unpickled, (self.ticket().plain, buffers, recipient is not None)

    def __repr__(self) -> str:
        return f"<Share of Dask: {self._arrays_text()}, {self.nbytes} bytes>"

    def _adopt(self, own: LocalShare, *others: LocalShare) -> None:
        """Owns this share, and others, from now on. REQUIRES: the lock, or no other thread knows this object."""
        self._ticket = self._ticket._replace(record=record_of(own))
        self._own, self._frames = own, None
        withdrawals = _withdrawals()
        weakref.finalize(self, withdrawals.add, own, *others)
        with _lock:
            _held.add(self)

    def _parts(self) -> list[Any] | None:
        """The bytes of each array; None: they are elsewhere."""
        with self._lock:
            return self._frames if self._own is None else [memoryview(part) for part in contents_of(self._own).parts]

    def _find(self) -> bool:
        """Adopts a share over the sender's bytes in the same broker, or of those that came with it. False: there are none."""
        with self._lock:
            if self._own is not None:
                return True
            record, origin, _ = self._ticket
            broker = broker_of(record.namespace)
            with contextlib.suppress(ShareNotFound):
                self._adopt(forward_of(LocalShare(broker, record)))
                return True
            if self._frames is not None:
                self._adopt(*_published(broker, Contents(tuple(record), self._frames), origin))
            elif (near := held_here(origin)) is not None:
                with contextlib.suppress(ShareNotFound):  # its broker has ended
                    self._adopt(forward_of(near.local()))
            return self._own is not None

    def _pull(self) -> None:
        """Adopts a share of the bytes that a worker has. Waits for it, so it is not called in Dask's event loop."""
        record, origin, worker = self._ticket
        if not worker and record.broker_id == run_of(broker_of(record.namespace)):
            what = f"share {record.name!r} has ended: its maker dropped it, or ended"
            raise ShareNotFound(f"{what}; {peers.WAY}", _NOT_FOUND, "SHARE_NOT_FOUND")
        pulled: Share = peers.pulled(worker, origin, record.name)
        self._adopt(forward_of(pulled.local()))


def unpickled(plain: tuple[Any, ...], buffers: list[Any] | None = None, at_once: bool = False) -> Share:
    """A Share from a pickle. Uses no broker but `at_once`, because schedulers unpickle objects that they never read."""
    share = Share(ticket_from(plain), frames=None if buffers is None else [memoryview(buffer).cast("B") for buffer in buffers])
    if at_once:
        # Dask may drop the sender's. If there can be none, the first use raises the reason.
        with contextlib.suppress(BrokerError):
            share._find()
    return share


def holds_any() -> bool:
    """True if this process has a Share."""
    with _lock:
        return bool(_held)


def held_here(origin: Origin) -> Share | None:
    """A Share of this process that has these bytes."""
    with _lock:
        return next((share for share in _held if share.origin == origin), None)


def dump(share: Share, context: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[Any]]:
    """Dask's serialization: a ticket for a process with the same broker, and for any other, and for a file, the bytes, too."""
    is_here = share._find()
    parts = None if not is_here or peers.reads(share.local().broker_id, context) else share._parts()
    return {"ticket": share.ticket().plain, "bytes": parts is not None}, parts or []


def load(header: dict[str, Any], frames: list[Any]) -> Share:
    """The Share of `dump`."""
    return unpickled(header["ticket"], frames if header["bytes"] else None, at_once=True)


def _published(broker: Broker, contents: Contents, origin: Origin) -> list[LocalShare]:
    """A share of these bytes, which are published if no other process of this host has done it; and its entry in the index,
    if it was made here.

    The index is a share named by the origin. It ends with the object that made it, and if that is killed, after a minute.
    """
    run, _, id = origin
    name = f"dask/{run.hex()}/{id}"
    with contextlib.suppress(ShareNotFound):
        return [_indexed(broker, name, contents)]
    own = replica_of(broker, contents)
    try:
        return [own, forward_of(own, name, _INDEX_SECONDS)]
    except ShareExists:  # another process was faster
        with contextlib.suppress(ShareNotFound):
            same = _indexed(broker, name, contents)
            own.withdraw()
            return [same]
        return [own]
    except BrokerError:  # no room for an entry: other processes of this host publish their own
        return [own]


def _indexed(broker: Broker, name: str, contents: Contents) -> LocalShare:
    """A share over the bytes of the index's entry.

    Raises:
        ShareNotFound: there is no entry, or one of other arrays.
    """
    wanted = _form(record_from(contents.record))
    for entry in broker.list(name):
        if entry.share.name == name and _form(record_of(entry.share)) == wanted:
            return forward_of(entry.share)
    raise ShareNotFound(f"no share {name!r} has the arrays that it is named by", _NOT_FOUND, "SHARE_NOT_FOUND")


def _form(record: Record) -> tuple[bytes, list[tuple[str, tuple[int, ...]]]]:
    return record.structure, [(dtype, tuple(shape)) for dtype, _, shape, _, _ in record.arrays]


class _Withdrawals:
    """Withdraws shares in a thread of its own: objects are dropped in Dask's event loop, which must not wait, and anywhere by
    the collector.
    """

    def __init__(self) -> None:
        self.pid: Final = os.getpid()
        self._ended: queue.SimpleQueue[tuple[LocalShare, ...] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="arraybridge-dask", daemon=True)
        self._thread.start()
        self._closed = False
        atexit.register(self._close)

    def add(self, *shares: LocalShare) -> None:
        """Withdraws these. A forked child has none: they are its parent's."""
        if self.pid != os.getpid():
            return
        if self._closed:
            _withdraw(shares)
        else:
            self._ended.put(shares)

    def _close(self) -> None:
        # Objects that live until the interpreter ends are added before or after this, and withdrawn in both cases.
        if self.pid == os.getpid():
            self._closed = True
            self._ended.put(None)
            self._thread.join(_CLOSE_SECONDS)  # the broker may not answer; it ends the shares of a process that has ended

    def _run(self) -> None:
        while (shares := self._ended.get()) is not None:
            _withdraw(shares)


def _withdraw(shares: tuple[LocalShare, ...]) -> None:
    for share in shares:
        with contextlib.suppress(BrokerError):  # it has ended, or its broker
            share.withdraw()


_held: weakref.WeakSet[Share] = weakref.WeakSet()
_lock = lock_of(globals(), threading.RLock)
_current: _Withdrawals | None = None


def _withdrawals() -> _Withdrawals:
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid():
            _current = _Withdrawals()
        return _current


def _register() -> None:
    protocol: Any = ensure_module("distributed.protocol")
    protocol.dask_serialize.register(Share)(dump)
    protocol.dask_deserialize.register(Share)(load)
    ensure_module("dask.sizeof").sizeof.register(Share)(lambda share: share.nbytes)


ensure_module("distributed", (2026, 8))
_register()
autograph.mark_module(__name__)
