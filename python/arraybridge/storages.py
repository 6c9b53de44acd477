# SPDX-License-Identifier: Apache-2.0
"""The storages of torch in one message of multiprocessing: tensors that share a storage share one in the receiver, too.

A pickler meets one tensor after another, and only after the last one it is known which bytes of a storage the message
uses. So the pickle names a share for each storage, and the bytes are put when the pickler has ended.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

from arraybridge.adapters import ensure_module
from arraybridge.broker.broker import Broker
from arraybridge.broker.share import Got, Share
from arraybridge.errors import BrokerError

_ALIGN_BYTES: Final = 64  # a part begins at a multiple of it, so that elements of every dtype stay aligned
_METADATA_BYTES_MAX: Final = 8 << 10  # of a list of parts; a longer one is an array of its own, the last one
_IN_LAST_ARRAY: Final = b"-"


class Layout(NamedTuple):
    """The place of a tensor's elements in its storage."""

    dtype: Any
    offset: int  # in elements, as the strides
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    conjugate: bool
    negative: bool

    @classmethod
    def of(cls, tensor: Any) -> Self:
        strides = tuple(tensor.stride())
        return cls(tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), strides, tensor.is_conj(), tensor.is_neg())

    @property
    def span(self) -> tuple[int, int]:
        """The first byte of the elements in the storage, and the one after the last. REQUIRES: there are elements."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return self.offset * self.dtype.itemsize, (self.offset + last + 1) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return int(math.prod(self.shape) * self.dtype.itemsize)


class Part(NamedTuple):
    """A range of a storage's bytes that a share has."""

    begin: int
    end: int
    alone: bool  # the share has not these bytes but the values of the one tensor in them


class SentStorage:
    """A storage in a message that is being pickled. Its pickle, which a message has once, refers to a share."""

    def __init__(self, name: str, reference: tuple[Any, ...]) -> None:
        """
        Args:
            name: of the share that its bytes will have.
            reference: its reduced form, which a receiver makes a ReceivedStorage of.
        """
        self.name, self._reference = name, reference
        self.sealed = False  # whether the sender may still write its bytes, which lie in the broker's memory
        self._tensors: dict[Layout, Any] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reference

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.parts()[0])

    def add(self, tensor: Any) -> Layout:
        """REQUIRES: the tensor has elements, and this storage."""
        layout = Layout.of(tensor)
        self._tensors.setdefault(layout, tensor)
        return layout

    def parts(self) -> tuple[list[Any], bytes]:
        """Tensors with the bytes that are to be sent, and metadata, from which ReceivedStorage makes the storage; none: it
        is a single tensor.
        """
        if len(self._tensors) == 1:
            layout, tensor = next(iter(self._tensors.items()))
            if _is_alone([layout], tensor):
                return [tensor], b""
        arrays, parts = [], []
        for group in _joined(sorted(self._tensors, key=lambda layout: layout.span)):
            begin, end = group[0].span[0] // _ALIGN_BYTES * _ALIGN_BYTES, max(layout.span[1] for layout in group)
            tensor = self._tensors[group[0]]
            alone = _is_alone(group, tensor)
            parts.append(Part(begin, end, alone))
            arrays.append(tensor if alone else _tensor(tensor, "uint8", begin, (end - begin,), (1,)))
        return arrays, json.dumps(parts).encode()


class Message:
    """A message that is being pickled: the storages that its pickler has met, and all that was put for it."""

    def __init__(self) -> None:
        self.storages: dict[int, SentStorage] = {}  # by torch's own number
        self.shares: list[Share] = []

    def put_storages(self, broker: Broker, lifetime: float) -> None:
        """Raises:
        BrokerError: the broker has no room, for example.
        """
        for storage in self.storages.values():
            arrays, metadata = storage.parts()
            if len(metadata) > _METADATA_BYTES_MAX:
                torch = ensure_module("torch")
                arrays, metadata = [*arrays, torch.frombuffer(bytearray(metadata), dtype=torch.uint8)], _IN_LAST_ARRAY
            content, sealed = arrays if len(arrays) > 1 else arrays[0], storage.sealed
            self.shares.append(broker.put(content, storage.name, sealed=sealed, metadata=metadata, lifetime=lifetime))

    def withdraw(self) -> None:
        """It is not sent."""
        for share in self.shares:
            with contextlib.suppress(BrokerError):
                share.withdraw()


class ReceivedStorage:
    """A storage that a message referred to; its tensors are made of it."""

    def __init__(self, got: Got) -> None:
        metadata = got.share.metadata
        arrays = got.array if isinstance(got.array, list) else [got.array]
        if metadata == _IN_LAST_ARRAY:
            *arrays, last = arrays
            metadata = last.numpy().tobytes()
        parts = [Part(*part) for part in json.loads(metadata)] if metadata else [Part(0, sys.maxsize, True)]
        self._parts = list(zip(parts, arrays, strict=True))  # by their begin, since `SentStorage.parts` sorts them

    def tensor(self, layout: Layout) -> Any:
        """The tensor that had this layout in the storage of the sender."""
        begin = layout.span[0]
        part, values = self._parts[bisect.bisect_right(self._parts, begin, key=lambda each: each[0].begin) - 1]
        if part.alone:
            return values.detach()
        offset, remainder = divmod(values.storage_offset() + begin - part.begin, layout.dtype.itemsize)
        assert not remainder
        made = _tensor(values, layout.dtype, offset, layout.shape, layout.strides)
        made = made.conj() if layout.conjugate else made
        return ensure_module("torch")._neg_view(made) if layout.negative else made


def _is_alone(group: Sequence[Layout], tensor: Any) -> bool:
    """Whether the values of a group's only tensor are sent instead of the bytes, of which some may not be its own."""
    begin, end = group[0].span
    return len(group) == 1 and (tensor.is_contiguous() or group[0].nbytes < end - begin)


def _joined(layouts: Iterable[Layout]) -> list[list[Layout]]:
    """Groups of tensors, each of one range of bytes. Ranges that overlap or touch are one, and all of them are, unless more
    bytes lie between them than in them: images of a large data set, for example.
    """
    groups: list[list[Layout]] = []
    end = used = between = 0
    for layout in layouts:
        begin, its_end = layout.span
        if groups and begin <= end:
            groups[-1].append(layout)
        else:
            between += begin - end if groups else 0
            groups.append([layout])
            end = begin
        used += max(its_end - end, 0)
        end = max(end, its_end)
    return [[layout for group in groups for layout in group]] if between <= used else groups


def _tensor(like: Any, dtype: Any, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Any:
    """A tensor over the same storage. Torch has no other function that makes one without a common autograd history."""
    torch = ensure_module("torch")
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    return torch.empty(0, dtype=dtype).set_(like.untyped_storage(), offset, shape, strides)
