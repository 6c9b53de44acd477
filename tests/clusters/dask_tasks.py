# SPDX-License-Identifier: Apache-2.0
"""The tasks of test_dask.py, and how its clusters are made. Dask's workers import it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import arrow_table

import arraybridge
import arraybridge.integrations.dask as abd

SIZE = 1 << 16
NBYTES = 4 * SIZE
_sent: list[int] = []  # bytes that accompany each Share that this process serialized


class Place(NamedTuple):
    """Where bytes lie: the file of an arena, and the offset in it."""

    inode: int
    offset: int


def place_of(address: int) -> Place:
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, _, offset, _, inode, *_ = line.split()
        first, last = (int(end, 16) for end in area.split("-"))
        if first <= address < last:
            return Place(int(inode), int(offset, 16) + address - first)
    raise LookupError(hex(address))


def made(value: float = 1.0, size: int = SIZE) -> Any:
    import numpy as np

    return abd.put(np.full(size, value, "f4"))


def born() -> tuple[Any, Place]:
    """A Share of an array that was made in broker memory, and where that lay."""
    array = abd.empty(SIZE, "f4")
    array[:] = 3
    place = place_of(array.ctypes.data)
    return abd.put(array), place


def first_of(pair: tuple[Any, Place]) -> Any:
    return pair[0]


def tree() -> Any:
    import numpy as np

    return abd.put({"rows": np.ones((8, 8)), "more": [np.arange(3), np.zeros(0)], "name": "tree"}, metadata=b"mine")


def bundle() -> Any:
    import numpy as np

    broker = arraybridge.Broker()
    share = broker.bundle("weights", {"w": np.full((4, 4), 2, "f4"), "b": np.zeros(3, "f4")}).fill().publish()
    try:
        return abd.share_of(share)
    finally:
        share.withdraw()


def table() -> Any:
    return abd.put(arrow_table.ArrowTable())


def seen_table(share: Any) -> Any:
    return arrow_table.read(share.get())


def seen_tree(share: Any) -> tuple[float, list[int], int, str, bytes, list[str]]:
    found = share.get()
    return float(found["rows"].sum()), found["more"][0].tolist(), found["more"][1].size, found["name"], share.metadata, [
        spec.dtype for spec in share.specs
    ]  # fmt: skip


def seen_bundle(share: Any) -> tuple[list[str], float, float]:
    opened = share.open()
    return sorted(opened), float(opened.numpy()["w"].sum()), float(memoryview(opened["b"])[0])


def seen(share: Any, framework: str = "numpy") -> tuple[float, int, Place]:
    """The sum, the process, and where the bytes lie."""
    array = share.get(framework)
    pointer = array.data_ptr() if framework == "torch" else array.unsafe_buffer_pointer() if framework == "jax" else array.ctypes.data
    return float(array.sum()), os.getpid(), place_of(pointer)


def total(share: Any) -> float:
    return float(share.get().sum())


def sum_of_all(*shares: Any) -> float:
    return sum(map(total, shares))


def nested() -> Any:
    """A Share in an object that Dask pickles whole."""
    return {"loss": 0.5, "weights": made()}


def total_of_nested(result: dict[str, Any]) -> float:
    return total(result["weights"])


def reference_to(share: Any) -> Any:
    return share.ticket().plain


def same(share: Any) -> Any:
    return share


def counting() -> None:
    """Counts from now on the bytes that accompany Shares."""
    from distributed.protocol import dask_serialize

    from arraybridge.integrations.dask_share import Share, dump

    def counted(share: Any, context: Any = None) -> Any:
        header, frames = dump(share, context)
        _sent.append(sum(frame.nbytes for frame in frames))
        return header, frames

    _sent.clear()
    dask_serialize.register(Share)(counted)


def sent() -> list[int]:
    return list(_sent)


def until(condition: Callable[[], Any]) -> None:
    """The time limit of the whole run is the only one."""
    while not condition():
        time.sleep(0.01)


@contextlib.contextmanager
def worker(scheduler: str, address: str, name: str, *prefix: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker without a nanny, whose process is given, at the broker of an address."""
    flags = ["--name", name, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0", "--death-timeout", "60"]
    command = [*prefix, sys.executable, "-m", "distributed.cli.dask_worker", scheduler, *flags]
    process = subprocess.Popen(command, env={**os.environ, "ARRAYBRIDGE_ADDRESS": address, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
