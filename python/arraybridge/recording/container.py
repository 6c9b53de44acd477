# SPDX-License-Identifier: Apache-2.0
"""A Container is an MCAP file that is being written: chunks of messages, then an index. The package `mcap` writes its records.

Each write begins where a record begins, so a file whose writer was killed, or whose disk was full, is whole up to its last
chunk. Not thread-safe.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any, Final, Literal

from arraybridge import _core
from arraybridge.adapters import ensure_module
from arraybridge.errors import FrameworkNotAvailable
from arraybridge.recording import images

Compression = Literal["none", "zstd"]
Kind = Literal["channel", "events", "image"]

KIND: Final = "arraybridge"  # the key of a Kind in the metadata of a channel of the file
EVENTS: Final = "/arraybridge/events"
CHUNK_BYTES: Final = 1 << 20  # a message that is larger has a chunk of its own
_EVENT_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "channel": {"type": "string"},
        "event": {"type": "string", "enum": ["ended", "lost", "missed", "stopped"]},
        "text": {"type": "string"},
        "first": {"type": "integer"},
        "count": {"type": "integer"},
    },
    "required": ["channel", "event"],
}


def require_mcap() -> Any:
    """The module `mcap.writer`.

    Raises:
        FrameworkNotAvailable: it is not installed.
    """
    try:
        return ensure_module("mcap.writer")
    except FrameworkNotAvailable as error:
        what = f"a recording needs the package mcap: {error.__cause__}; pip install 'mcap>=1.6'"
        raise FrameworkNotAvailable("channel", "mcap", "record", what) from error.__cause__


class Container:
    """An open MCAP file. `close` completes it; a file without it can be read up to its last chunk."""

    def __init__(self, path: str, compression: Compression, replace: bool) -> None:
        mcap = require_mcap()
        self.file: Final = _File(path, replace)
        kind = mcap.CompressionType.ZSTD if compression == "zstd" else mcap.CompressionType.NONE
        self._writer: Final = mcap.Writer(self.file, chunk_size=CHUNK_BYTES, compression=kind)
        self._images: dict[str, int] = {}
        self._image_schema = 0
        self._writer.start(profile="arraybridge", library=f"arraybridge {_core.__version__}")
        self._schema = self._writer.register_schema("arraybridge.Message", "", b"")
        events = self._writer.register_schema("arraybridge.Event", "jsonschema", json.dumps(_EVENT_SCHEMA).encode())
        self._events = self._writer.register_channel(EVENTS, "json", events, {KIND: "events"})

    def add_channel(self, name: str, facts: Mapping[str, str]) -> int:
        """The number of a channel in the file."""
        number: int = self._writer.register_channel(name, "safetensors", self._schema, {KIND: "channel", **facts})
        return number

    def add(self, channel: int, data: bytes, sequence: int, received_ns: int, sent_ns: int) -> None:
        """Adds a message. The times are in nanoseconds since 1970.

        Raises:
            OSError: the file cannot be written; it ends with the last complete record.
        """
        self._writer.add_message(channel, received_ns, data, sent_ns, sequence & 0xFFFFFFFF)

    def add_image(self, name: str, image: bytes, sequence: int, received_ns: int, sent_ns: int) -> None:
        """Adds an image for Foxglove, beside the messages of the channel of this name.

        Raises:
            OSError: as `add`.
        """
        if name not in self._images:
            if not self._image_schema:
                self._image_schema = self._writer.register_schema(images.SCHEMA, "protobuf", images.descriptors())
            topic = f"{name}/image"
            self._images[name] = self._writer.register_channel(topic, "protobuf", self._image_schema, {KIND: "image", "of": name})
        self.add(self._images[name], image, sequence, received_ns, sent_ns)

    def add_event(self, at_ns: int, channel: str, event: str, **facts: str | int) -> None:
        """Adds what happened to a channel.

        Raises:
            OSError: as `add`.
        """
        data = json.dumps({"channel": channel, "event": event, **facts}).encode()
        self._writer.add_message(self._events, at_ns, data, at_ns, 0)

    def flush(self) -> None:
        """Writes the chunk that is not full yet, so that a killed process loses nothing before.

        Raises:
            OSError: as `add`.
        """
        self._writer.flush()

    def close(self, facts: Mapping[str, str]) -> None:
        """Adds these facts and the index, and waits for the disk.

        Raises:
            OSError: as `add`.
        """
        try:
            if not self.file.failed:
                self._writer.flush()
                self._writer.add_metadata("arraybridge.recording", dict(facts))
                self._writer.finish()
                self.file.sync()
        finally:
            self.file.close()


class _File:
    """The file, without a buffer of its own: what a killed process has written stays."""

    def __init__(self, path: str, replace: bool) -> None:
        self.path: Final = path
        self.failed = False
        exclusive = os.O_TRUNC if replace else os.O_EXCL
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | exclusive, 0o666)
        except FileExistsError as error:
            raise FileExistsError(error.errno, "the file exists: choose another name, or pass replace=True (--replace)", path) from None
        self._end = 0

    def write(self, data: bytes) -> int:
        """Raises:
        OSError: the disk is full, or fails. The file is cut where this write began.
        """
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            self.failed = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._end)
            text = f"{error.strerror} after {self._end:,} bytes, up to which the recording can be read; free space, and record again"
            raise OSError(error.errno, text, self.path) from error
        self._end += len(data)
        return len(data)

    def tell(self) -> int:
        return self._end

    def flush(self) -> None:
        pass  # nothing is kept back

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)
