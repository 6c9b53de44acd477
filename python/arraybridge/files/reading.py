# SPDX-License-Identifier: Apache-2.0
"""Reads ranges of a file into memory, several at a time. Bytes for a GPU pass through host memory, PIECE of them in each
thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Final

from arraybridge.broker.gpu_bytes import GpuBytes, write
from arraybridge.errors import InvalidRequest
from arraybridge.files.stored import Told

PIECE: Final = 8 << 20  # bytes of one read
_THREADS_MAX: Final = 4
_BUFFERS_MAX: Final = 512  # of one read; Linux takes 1,024

Room = memoryview | GpuBytes
Range = tuple[int, Room]  # where its bytes begin in the file, and their place


def read(fd: int, path: str, ranges: Iterable[Range], told: Told) -> None:
    """Reads each range. `told` is called in this thread; its exceptions end the reading.

    Raises:
        InvalidRequest: the file is shorter. OSError: the file cannot be read.
        MemoryConversionError: a GPU's driver fails.
    """
    threads = min(_THREADS_MAX, len(os.sched_getaffinity(0)))
    staged = threading.local()  # `memory` of each thread: host memory for the bytes of a GPU
    pool = ThreadPoolExecutor(threads, "arraybridge-read")
    try:
        pieces = pieces_of(sorted(ranges, key=lambda each: each[0]))
        reads = [pool.submit(_read_piece, fd, path, offset, rooms, staged) for offset, rooms in pieces]
        for done in as_completed(reads):
            told(done.result())
    finally:
        pool.shutdown(cancel_futures=True)


def pieces_of(ranges: Iterable[Range]) -> Iterator[tuple[int, list[Room]]]:
    """Divides long ranges, and joins short ones that follow one another in the file."""
    first, end, rooms = 0, 0, list[Room]()
    for offset, room in ranges:
        for start in range(0, len(room), PIECE):
            piece = room[start : start + PIECE]
            at = offset + start
            if rooms and (at != end or end - first + len(piece) > PIECE or len(rooms) == _BUFFERS_MAX):
                yield first, rooms
                rooms = []
            if not rooms:
                first = at
            rooms.append(piece)
            end = at + len(piece)
    if rooms:
        yield first, rooms


def _read_piece(fd: int, path: str, offset: int, rooms: Sequence[Room], staged: threading.local) -> int:
    on_host = [room for room in rooms if isinstance(room, memoryview)]
    if len(on_host) == len(rooms):
        return _read(fd, path, offset, on_host)
    there = [room for room in rooms if isinstance(room, GpuBytes)]
    if not hasattr(staged, "memory"):
        staged.memory = memoryview(bytearray(PIECE))
    values: memoryview = staged.memory[: sum(map(len, there))]
    _read(fd, path, offset, [values])
    write(there, values)
    return len(values)


def _read(fd: int, path: str, offset: int, rooms: list[memoryview]) -> int:
    total = 0
    while rooms:
        try:
            count = os.preadv(fd, rooms, offset + total)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error
        if count == 0:
            raise InvalidRequest(f"{path} has become shorter: nothing is published; load it again")
        total += count
        while rooms and count >= len(rooms[0]):
            count -= len(rooms.pop(0))
        if count:
            rooms[0] = rooms[0][count:]
    return total
