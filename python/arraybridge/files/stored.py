# SPDX-License-Identifier: Apache-2.0
"""A Stored is an open file of named arrays; each format is a module with one, which reads it into a bundle's memory."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

from arraybridge.broker.bundle import BundleWriter
from arraybridge.errors import InvalidRequest

_RANK_MAX: Final = 64
Told = Callable[[int], object]  # is told of bytes that have been read, in any thread


class Stored:
    """An open file of named arrays. A base class.

    The file is checked before memory is allocated for it: what a header claims beyond the end of the file is refused.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        found = os.fstat(self.fd)
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise InvalidRequest(f"{path} is no regular file")
        self.size, self._time = found.st_size, found.st_mtime_ns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def contents(self) -> Mapping[str, Any]:
        """The arrays as `Broker.bundle` takes them.

        Raises:
            InvalidRequest: the file is malformed. UnsupportedDtype: no bundle can have such an array.
        """
        raise NotImplementedError

    def metadata(self) -> Mapping[str, str]:
        """The text that its maker added."""
        return {}

    def header(self) -> bytes:
        """The part of the file that describes its arrays."""
        raise NotImplementedError

    def read_into(self, writer: BundleWriter, told: Told) -> None:
        """Reads the values of its arrays into a bundle that was made of `contents`.

        Raises:
            InvalidRequest: the file is malformed. OSError: the file cannot be read.
        """
        raise NotImplementedError

    def identity(self) -> bytes:
        """Size, time of the last change, and `header`: changes whenever the file is written."""
        return b"%d %d %s" % (self.size, self._time, self.header())

    def check_unchanged(self) -> None:
        """Raises:
        InvalidRequest: somebody has written to the file since it was opened.
        """
        found = os.fstat(self.fd)
        if (found.st_size, found.st_mtime_ns) != (self.size, self._time):
            raise InvalidRequest(f"{self.path} was written to while it was read: nothing is published; load it again")

    def bytes_of(self, name: str, shape: Sequence[int], bits: int) -> int:
        """The bytes of an array.

        Raises:
            InvalidRequest: it has too many dimensions, does not fit into an address space, with or without elements, or ends
                within a byte.
        """
        if len(shape) > _RANK_MAX or math.prod(max(size, 1) for size in shape) * bits // 8 >= 1 << 62:
            raise self.malformed(f"array {name!r} has {len(shape)} dimensions, or is larger than any memory")
        if math.prod(shape) * bits % 8:
            raise self.malformed(f"array {name!r}, {bits} bits x {list(shape)}, ends within a byte")
        return math.prod(shape) * bits // 8

    def malformed(self, why: str) -> InvalidRequest:
        return InvalidRequest(f"{self.path}: {why}")
