# SPDX-License-Identifier: Apache-2.0
"""A replica is a share in another broker with the bytes and the description of a share: for clusters, whose transport moves
the bytes between hosts. `forward_of` makes another share of the same broker, over the same bytes.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from arraybridge import _core
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.arguments import check_text
from arraybridge.arrays import devices
from arraybridge.broker import notes
from arraybridge.broker.broker import Broker
from arraybridge.broker.bundle import Bundle, BundleWriter
from arraybridge.broker.fork_lock import lock_of
from arraybridge.broker.patterns.metadata import decoded
from arraybridge.broker.share import ArraySpec, Record, Share, record_from, record_of
from arraybridge.errors import InvalidRequest, UnsupportedArray, printable

T = TypeVar("T")
_lock = lock_of(globals(), threading.Lock)
_brokers: dict[tuple[str, str | None], Broker] = {}  # by namespace and $ARRAYBRIDGE_ADDRESS


def broker_of(namespace: str) -> Broker:
    """This process's Broker of a namespace, at the broker of this host, as `Broker()` finds it.

    Raises:
        InvalidRequest: no namespace can have this name.
    """
    check_text(namespace, "a namespace", empty=False)
    key = namespace, os.environ.get("ARRAYBRIDGE_ADDRESS")
    with _lock:
        if key not in _brokers:
            _brokers[key] = Broker(namespace=namespace)
        return _brokers[key]


def run_of(broker: Broker) -> bytes:
    """The id of the broker and its run."""
    return bytes(broker._connection.ask(lambda core: core.server_info())["broker_id"])


def published(broker: Broker, array: Any, metadata: bytes | None) -> Share:
    """The share of an array, a tree of arrays or a filled BundleWriter.

    Raises:
        InvalidRequest: metadata with a bundle, which has its own. Other errors of `Broker.put`.
    """
    if isinstance(array, Bundle | BundleWriter) and metadata is not None:
        raise InvalidRequest("the metadata of a bundle are given to Broker.bundle, not to put")
    return array.publish() if isinstance(array, BundleWriter) else broker.put(array, metadata=metadata)


class Contents(NamedTuple):
    """A share's description, as the plain tuple of a Record, and the bytes of each of its arrays: one-dimensional
    read-only NumPy arrays of uint8, in the broker's memory itself.
    """

    record: tuple[Any, ...]
    parts: list[Any]


def contents_of(share: Share) -> Contents:
    """The share's Contents. Its bytes stay as long as one of the parts lives.

    Raises:
        UnsupportedArray: it lies on a GPU. ShareNotFound: it has ended.
    """
    if share.device != devices.HOST:
        reason = f"it lies on {devices.named(share.device)}: between hosts go arrays of host memory"
        raise UnsupportedArray("share", "another host", "place", reason)
    parts = [_bytes_of(view) for view in share._broker._plain_views(share, False)]
    return Contents(tuple(record_of(share)), parts)


class FarShare(ABC):
    """A share that may be in the broker of another host: a part of the Shares of Ray and Dask."""

    __slots__ = ()

    @property
    @abstractmethod
    def _record(self) -> Record:
        """The share's description."""

    @abstractmethod
    def local(self) -> Share:
        """The share, or its replica, in the broker of this host."""

    def open(self) -> Bundle:
        """The bundle, as `Broker.open`; moved as by `get`.

        Raises:
            InvalidRequest: it is no bundle. Other errors of `get`.
        """
        return self._used(lambda share: share._broker.open(share))

    def _used(self, use: Callable[[Share], T]) -> T:
        return use(self.local())

    @property
    def nbytes(self) -> int:
        """Bytes that the share spans in the broker's memory."""
        return self._record.size

    @property
    def metadata(self) -> Any:
        """As `Share.metadata`."""
        return decoded(self._record.metadata)

    @property
    def specs(self) -> Sequence[ArraySpec]:
        """Of each array: dtype, shape, strides in elements, offset in bytes."""
        return [ArraySpec(name, tuple(shape), tuple(strides), offset) for name, _, shape, strides, offset in self._record.arrays]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.local().__array__(dtype, copy)

    def _arrays_text(self) -> str:
        """The dtypes and shapes of the first arrays."""
        shown = ", ".join(f"{printable(spec.dtype)} {spec.shape}" for spec in self.specs[:3])
        more = len(self._record.arrays) - 3
        return f"{shown} and {more} more" if more > 0 else shown


def replica_of(broker: Broker, contents: Contents) -> Share:
    """A new share of this broker, without a name, with a copy of these bytes.

    Raises:
        As ReplicaWriter.
    """
    writer = ReplicaWriter(broker, contents.record)
    for part in contents.parts:
        writer.write(part)
    return writer.publish()


class ReplicaWriter:
    """A replica that is being written, piece after piece. It has no name, and ends as `put` without a name says; its
    namespace is that of the Broker.

    Raises:
        OutOfMemory: no room until `timeout_s`. InvalidRequest: the pieces do not fit the description.
    """

    def __init__(self, broker: Broker, fields: tuple[Any, ...]) -> None:
        record = record_from(fields)
        note = notes.cut("replica place")
        specs = [(dtype, code, shape) for dtype, code, shape, _, _ in record.arrays]
        self._broker = broker
        self._options = _core.PutOptions(structure=record.structure, metadata=record.metadata, note=note, note_in_place=note)
        self._placement = broker._connection.ask(lambda core: core.empty(specs, "", self._options))
        arrays = [_bytes_of(view) for view in self._placement.views]
        self._unfilled = [each for each in arrays if each.nbytes]  # those that are not full
        self._filled = 0  # bytes of the first of them

    def write(self, piece: Any) -> None:
        """The next bytes, of one array: one-dimensional, uint8."""
        if not piece.nbytes:
            return
        if not self._unfilled or piece.nbytes > self._unfilled[0].nbytes - self._filled:
            raise InvalidRequest(f"a piece of {piece.nbytes} bytes does not fit into the share that its description says")
        self._unfilled[0][self._filled : self._filled + piece.nbytes] = piece
        self._filled += piece.nbytes
        if self._filled == self._unfilled[0].nbytes:
            del self._unfilled[0]
            self._filled = 0

    def unfilled(self) -> list[Any]:
        """The arrays of bytes that are to be filled by other means than `write`: those of the share that have any."""
        unfilled, self._unfilled = self._unfilled, []
        return unfilled

    def publish(self) -> Share:
        """The share, when all bytes are written."""
        if self._unfilled:
            lack = sum(each.nbytes for each in self._unfilled) - self._filled
            raise InvalidRequest(f"{lack} bytes are missing of the share that the description says")
        info = self._broker._connection.ask(lambda core: core.publish(self._placement, "", self._options))
        assert info is not None
        return Share(self._broker, info)


def forward_of(share: Share, name: str = "", lifetime_s: float = 0.0) -> Share:
    """One more share with the bytes and the description of this one, a bundle's too; the bytes are freed with the last of them.

    Args:
        name: empty: none, so that it ends as `put` without a name says.
        lifetime_s: seconds after which it is withdrawn; 0: that of the namespace.

    Raises:
        ShareNotFound: the share has ended, or is in another broker. ShareExists: the name is taken.
    """
    record, broker = share._record, share._broker
    note = notes.of_forward("replica")
    options = _core.PutOptions(structure=record.structure, metadata=record.metadata, lifetime_s=lifetime_s, note=note, note_forward=note)
    views = broker._plain_views(share, False)
    info, _ = broker._connection.ask(lambda core: core.put(name, views, options))
    assert info is not None
    return Share(broker, info)


def _bytes_of(view: _core.View) -> Any:
    return numpy_adapter.bits_of(view).reshape(-1).view("u1")
