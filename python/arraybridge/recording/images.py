# SPDX-License-Identifier: Apache-2.0
"""Images as messages of Foxglove's schema RawImage, in protobuf's wire format.

Source: https://docs.foxglove.dev/docs/sdk/schemas/raw-image; https://protobuf.dev/programming-guides/encoding. A file in MCAP
has the schema as a FileDescriptorSet, which `descriptors` writes.
"""

from __future__ import annotations

from typing import Final

from arraybridge import _core
from arraybridge.adapters import ensure_module, numpy as numpy_adapter
from arraybridge.arrays import devices

SCHEMA: Final = "foxglove.RawImage"
# By dtype and number of colours; 0: an array of two dimensions.
_ENCODINGS: Final = {
    ("uint8", 0): "mono8",
    ("uint8", 1): "mono8",
    ("uint8", 3): "rgb8",
    ("uint8", 4): "rgba8",
    ("uint16", 0): "mono16",
    ("uint16", 1): "mono16",
    ("float32", 0): "32FC1",
    ("float32", 1): "32FC1",
}
_LENGTH: Final = 2  # the wire type of texts, bytes and messages
_STRING, _MESSAGE, _BYTES, _FIXED32, _INT32, _INT64 = 9, 11, 12, 7, 5, 3  # types of fields in descriptor.proto
_FIELDS: Final = (
    ("timestamp", 1, _MESSAGE), ("width", 2, _FIXED32), ("height", 3, _FIXED32), ("encoding", 4, _STRING),
    ("step", 5, _FIXED32), ("data", 6, _BYTES), ("frame_id", 7, _STRING),
)  # fmt: skip


def image_of(view: _core.View, frame: str, sent_ns: int) -> bytes | None:
    """An array of shape (height, width) or (height, width, colours) as a RawImage; None: it is no image.

    Args:
        frame: the name of the frame of reference.
        sent_ns: the time of the image, in nanoseconds since 1970.
    """
    encoding = _ENCODINGS.get((view.dtype_name, view.shape[2] if view.ndim == 3 else 0)) if view.ndim in (2, 3) else None
    if encoding is None or not view.size:
        return None
    host = view if view.device == devices.HOST else _core.copy_to_heap(view)
    pixels = ensure_module("numpy").ascontiguousarray(numpy_adapter.view(host))
    height, width = view.shape[:2]
    seconds, nanoseconds = divmod(sent_ns, 10**9)
    parts = [
        _field(1, _number(1, seconds) + _number(2, nanoseconds)),
        _fixed32(2, width),
        _fixed32(3, height),
        _field(4, encoding.encode()),
        _fixed32(5, pixels.nbytes // height),
        _field(7, frame.encode()),
        _key(6, _LENGTH) + _varint(pixels.nbytes),
        pixels.reshape(-1).view("u1"),
    ]
    return b"".join(parts)


def descriptors() -> bytes:
    """The FileDescriptorSet of RawImage and of the message that it refers to."""
    timestamp = _file("google/protobuf/timestamp.proto", "google.protobuf", "Timestamp", (("seconds", 1, _INT64), ("nanos", 2, _INT32)), "")
    image = _file("foxglove/RawImage.proto", "foxglove", "RawImage", _FIELDS, "google/protobuf/timestamp.proto")
    return _field(1, timestamp) + _field(1, image)


def _file(name: str, package: str, message: str, fields: tuple[tuple[str, int, int], ...], uses: str) -> bytes:
    """A FileDescriptorProto of one message."""
    described = _field(1, message.encode()) + b"".join(_field(2, _field_described(*each)) for each in fields)
    used = _field(3, uses.encode()) if uses else b""
    return _field(1, name.encode()) + _field(2, package.encode()) + used + _field(4, described) + _field(12, b"proto3")


def _field_described(name: str, number: int, kind: int) -> bytes:
    """A FieldDescriptorProto of an optional field."""
    type_name = _field(6, b".google.protobuf.Timestamp") if kind == _MESSAGE else b""
    return _field(1, name.encode()) + _number(3, number) + _number(4, 1) + _number(5, kind) + type_name


def _field(number: int, content: bytes) -> bytes:
    return _key(number, _LENGTH) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _key(number, 0) + _varint(value)


def _fixed32(number: int, value: int) -> bytes:
    return _key(number, 5) + value.to_bytes(4, "little")


def _key(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
