# SPDX-License-Identifier: Apache-2.0
"""A Recording is an MCAP file that is read: its messages and events, in the order in which they were recorded.

The file is input from outside: each length is checked against the bytes that are there before anything is read, and a chunk is
decompressed piece by piece, up to a limit. A file without an end, whose recorder was killed, is read up to its last whole
record. Source of the format: https://mcap.dev/spec.
"""

from __future__ import annotations

import os
import stat
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Self

from arraybridge.adapters import ensure_module
from arraybridge.errors import FrameworkNotAvailable, InvalidRequest
from arraybridge.recording.container import KIND

MAGIC: Final = b"\x89MCAP0\r\n"
CHUNK_BYTES_MAX: Final = 1 << 30
_CHANNELS_MAX: Final = 1 << 16  # numbers of channels have two bytes
_FOOTER, _CHANNEL, _MESSAGE, _CHUNK, _DATA_END = 2, 4, 5, 6, 15
_RECORD: Final = struct.Struct("<BQ")
_CHUNK_HEAD: Final = struct.Struct("<QQQII")  # first and last time, size, its checksum, length of the compression's name
_MESSAGE_HEAD: Final = struct.Struct("<HIQQ")  # channel, sequence, time of recording, time of sending
_FOOTER_BODY: Final = struct.Struct("<QQI")
_PIECE: Final = 1 << 20


class FileChannel(NamedTuple):
    """A channel of the file."""

    name: str
    encoding: str
    metadata: dict[str, str]


class FileMessage(NamedTuple):
    """A message of the file, and its times in nanoseconds since 1970."""

    channel: FileChannel
    recorded_ns: int
    sent_ns: int
    data: memoryview


class Recording:
    """An open MCAP file.

    Attributes:
        whole: after `messages`: False if the file ends within a record, or without its end, as after a kill of its recorder.
        start_ns: when the first message was recorded, once it was read.
    """

    def __init__(self, path: str, chunk_bytes_max: int = CHUNK_BYTES_MAX) -> None:
        self.path: Final = path
        self.whole = False
        self.start_ns: int | None = None
        self._chunk_bytes_max: Final = chunk_bytes_max
        self._channels: dict[int, FileChannel] = {}
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(self._fd)
            self._size: Final = found.st_size
            if not stat.S_ISREG(found.st_mode) or os.pread(self._fd, len(MAGIC), 0) != MAGIC:
                raise self.malformed("it does not begin as an MCAP file does")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def malformed(self, why: str) -> InvalidRequest:
        return self.refused(f"{why}: record again, or repair the file with a tool for MCAP")

    def refused(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"{self.path}: {why}")

    def channels(self) -> set[str]:
        """The recorded channels that were found until now, by name."""
        return {channel.name for channel in self._channels.values() if channel.metadata.get(KIND) == "channel"}

    def all_channels(self) -> set[str]:
        """The recorded channels of the whole file, by name. Reads all of a file that has no summary: its recorder was killed.

        Raises:
            As `messages`.
        """
        if not self._read_summary():
            deque(self.messages(), maxlen=0)
        return self.channels()

    def messages(self, begin_s: float = 0.0, end_s: float | None = None) -> Iterator[FileMessage]:
        """Messages and events that were recorded from `begin_s` up to `end_s` seconds after the first one, in the order of the file.

        Raises:
            InvalidRequest: the file is malformed, or a chunk exceeds the limit. OSError: it cannot be read.
            FrameworkNotAvailable: it is compressed, and the package of its compression is not installed.
        """
        skips = self._read_summary()
        for opcode, at, length in self._records(len(MAGIC)):
            if opcode in (_DATA_END, _FOOTER):
                self.whole = True
                return
            if opcode == _CHUNK:
                yield from self._chunk(at, length, begin_s, end_s, skips)
            elif opcode in (_CHANNEL, _MESSAGE):
                self._check_size(length)
                yield from self._found(opcode, memoryview(self._read(at, length)), begin_s, end_s)

    def _records(self, at: int) -> Iterator[tuple[int, int, int]]:
        """Code, place and length of each record that is whole."""
        while at + _RECORD.size <= self._size:
            opcode, length = _RECORD.unpack(self._read(at, _RECORD.size))
            at += _RECORD.size
            if length > self._size - at:
                return  # it was cut off
            yield opcode, at, length
            at += length

    def _chunk(self, at: int, length: int, begin_s: float, end_s: float | None, skips: bool) -> Iterator[FileMessage]:
        if length < _CHUNK_HEAD.size + 8:
            raise self.malformed("a chunk is too short")
        first_ns, last_ns, size, checksum, name_length = _CHUNK_HEAD.unpack(self._read(at, _CHUNK_HEAD.size))
        if self.start_ns is None:
            self.start_ns = first_ns
        if skips and not (self._wanted(first_ns, None, end_s) and self._wanted(last_ns, begin_s, None)):
            return
        self._check_size(max(size, length))
        body = memoryview(self._read(at, length))[_CHUNK_HEAD.size :]
        if name_length + 8 > len(body):
            raise self.malformed("the head of a chunk ends after the chunk")
        name, values = bytes(body[:name_length]), body[name_length + 8 :]
        if int.from_bytes(body[name_length : name_length + 8], "little") != len(values):
            raise self.malformed("the size of a chunk differs from its length")
        values = self._decompressed(name, values, size)
        if checksum and zlib.crc32(values) != checksum:
            raise self.malformed("the checksum of a chunk is wrong: its bytes have changed")
        yield from self._inside(values, begin_s, end_s)

    def _inside(self, values: memoryview, begin_s: float, end_s: float | None) -> Iterator[FileMessage]:
        """The messages of a chunk."""
        at = 0
        while at < len(values):
            if at + _RECORD.size > len(values):
                raise self.malformed("a record ends after its chunk")
            opcode, length = _RECORD.unpack_from(values, at)
            at += _RECORD.size
            if length > len(values) - at:
                raise self.malformed("a record ends after its chunk")
            yield from self._found(opcode, values[at : at + length], begin_s, end_s)
            at += length

    def _found(self, opcode: int, body: memoryview, begin_s: float | None, end_s: float | None) -> Iterator[FileMessage]:
        if opcode == _CHANNEL:
            self._add_channel(body)
        if opcode != _MESSAGE:
            return
        if len(body) < _MESSAGE_HEAD.size:
            raise self.malformed("a message is too short")
        number, _, recorded_ns, sent_ns = _MESSAGE_HEAD.unpack_from(body)
        channel = self._channels.get(number)
        if channel is None:
            raise self.malformed(f"a message is of channel {number}, which the file has not described")
        if self.start_ns is None:
            self.start_ns = recorded_ns
        if self._wanted(recorded_ns, begin_s, end_s):
            yield FileMessage(channel, recorded_ns, sent_ns, body[_MESSAGE_HEAD.size :])

    def _wanted(self, time_ns: int, begin_s: float | None, end_s: float | None) -> bool:
        seconds = (time_ns - (self.start_ns or 0)) / 1e9
        return (begin_s is None or seconds >= begin_s) and (end_s is None or seconds < end_s)

    def _add_channel(self, body: memoryview) -> None:
        reader = _Texts(body)
        try:
            number, _ = reader.numbers("<HH")
            name, encoding = reader.text(), reader.text()
            (length,) = reader.numbers("<I")
            end, metadata = reader.at + length, dict[str, str]()
            while reader.at < end:
                key = reader.text()
                metadata[key] = reader.text()
        except (struct.error, ValueError) as error:
            raise self.malformed(f"the description of a channel is malformed: {error}") from error
        self._channels[number] = FileChannel(name, encoding, metadata)

    def _read_summary(self) -> bool:
        """Reads the channels from the end of the file. False: it has no such part, so no chunk can be skipped."""
        at = self._size - len(MAGIC) - _FOOTER_BODY.size
        if at < 0 or os.pread(self._fd, len(MAGIC), self._size - len(MAGIC)) != MAGIC:
            return False
        start, offsets, _ = _FOOTER_BODY.unpack(self._read(at, _FOOTER_BODY.size))
        if not 0 < start < at:
            return False
        known = len(self._channels)
        for opcode, place, length in self._records(start):
            if opcode == _FOOTER:
                break
            if opcode == _CHANNEL:
                self._check_size(length)
                self._add_channel(memoryview(self._read(place, length)))
        return len(self._channels) > known

    def _decompressed(self, name: bytes, values: memoryview, size: int) -> memoryview:
        if not name:
            return values
        if name not in (b"zstd", b"lz4"):
            raise self.malformed(f"a chunk is compressed by {name[:32]!r}, which is unknown")
        made = bytearray()
        try:
            for piece in _pieces(name, values):
                made += piece
                if len(made) > size:
                    break
        except FrameworkNotAvailable:
            raise
        except Exception as error:  # each package has errors of its own
            raise self.malformed(f"a chunk cannot be decompressed: {error}") from error
        if len(made) != size:
            raise self.malformed(f"a chunk has other than the {size:,} bytes that it states")
        return memoryview(made)

    def _check_size(self, size: int) -> None:
        if size > self._chunk_bytes_max:
            what = f"{self.path}: a chunk of {size:,} bytes exceeds the limit of {self._chunk_bytes_max:,}"
            raise InvalidRequest(f"{what}: pass a larger chunk_bytes_max= if you trust the file")

    def _read(self, at: int, length: int) -> bytes:
        """REQUIRES: the file had these bytes when it was opened."""
        found = os.pread(self._fd, length, at)
        while len(found) < length:  # Linux reads 2 GiB at most
            more = os.pread(self._fd, length - len(found), at + len(found))
            if not more:
                raise self.malformed("it has become shorter while it was read")
            found += more
        return found


class _Texts:
    """Reads numbers and texts, one after another. Both raise struct.error or ValueError if the bytes end before."""

    def __init__(self, body: memoryview) -> None:
        self.at = 0
        self._body = body

    def numbers(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._body, self.at)
        self.at += struct.calcsize(form)
        return found

    def text(self) -> str:
        (length,) = self.numbers("<I")
        if length > len(self._body) - self.at:
            raise ValueError("a text ends after it")
        self.at += length
        return str(self._body[self.at - length : self.at], "utf-8")


def _pieces(name: bytes, values: memoryview) -> Iterator[bytes]:
    """The decompressed bytes, none of which is larger than a few MiB."""
    module: Any = ensure_module("zstandard" if name == b"zstd" else "lz4.frame")
    if name == b"zstd":
        yield from module.ZstdDecompressor().read_to_iter(bytes(values), write_size=_PIECE)
        return
    decompressor = module.LZ4FrameDecompressor()
    source: Any = bytes(values)
    while not decompressor.eof:
        piece = decompressor.decompress(source, max_length=_PIECE)
        if not piece and decompressor.needs_input:
            return
        source = b""
        yield piece
