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

Destination = memoryview | GpuBytes
Range = tuple[int, Destination]  # where its bytes begin in the file, and their place


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
        reads = [pool.submit(_read_piece, fd, path, offset, destinations, staged) for offset, destinations in pieces]
        for done in as_completed(reads):
            told(done.result())
    finally:
        pool.shutdown(cancel_futures=True)


def pieces_of(ranges: Iterable[Range]) -> Iterator[tuple[int, list[Destination]]]:
    """Divides long ranges, and joins short ones that follow one another in the file."""
    first, end, destinations = 0, 0, list[Destination]()
    for offset, destination in ranges:
        for start in range(0, len(destination), PIECE):
            piece = destination[start : start + PIECE]
            at = offset + start
            if destinations and (at != end or end - first + len(piece) > PIECE or len(destinations) == _BUFFERS_MAX):
                yield first, destinations
                destinations = []
            if not destinations:
                first = at
            destinations.append(piece)
            end = at + len(piece)
    if destinations:
        yield first, destinations


def _read_piece(fd: int, path: str, offset: int, destinations: Sequence[Destination], staged: threading.local) -> int:
    on_host = [destination for destination in destinations if isinstance(destination, memoryview)]
    if len(on_host) == len(destinations):
        return _read(fd, path, offset, on_host)
    there = [destination for destination in destinations if isinstance(destination, GpuBytes)]
    if not hasattr(staged, "memory"):
        staged.memory = memoryview(bytearray(PIECE))
    values: memoryview = staged.memory[: sum(map(len, there))]
    _read(fd, path, offset, [values])
    write(there, values)
    return len(values)


def _read(fd: int, path: str, offset: int, destinations: list[memoryview]) -> int:
    total = 0
    while destinations:
        try:
            count = os.preadv(fd, destinations, offset + total)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error
        if count == 0:
            raise InvalidRequest(f"{path} has become shorter: nothing is published; load it again")
        total += count
        while destinations and count >= len(destinations[0]):
            count -= len(destinations.pop(0))
        if count:
            destinations[0] = destinations[0][count:]
    return total
