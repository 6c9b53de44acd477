# SPDX-License-Identifier: Apache-2.0
"""Tasks and an actor of the tests with Ray; workers import them from here."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import ray

import arraybridge.integrations.ray as abr
from arraybridge.errors import BrokerError


def on(node: str) -> dict[str, Any]:
    """Options of a task or actor that runs on this node."""
    return {"resources": {node: 1}, "num_cpus": 0}


def memory_of(array: Any) -> str:
    """The device, inode and offset of an array's bytes."""
    address = array.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, device, inode, *_ = line.split()
        first, last = (int(each, 16) for each in span.split("-"))
        if first <= address < last:
            return f"{device} {inode} {int(offset, 16) + address - first}"
    raise AssertionError(f"nothing is mapped at {address:x}")


@ray.remote
def read(share: Any, framework: str = "numpy", **wishes: Any) -> tuple[float, str, int]:
    array = share.get(framework, **wishes)
    return float(array.sum()), type(array).__module__.partition(".")[0], os.getpid()


@ray.remote
def made(count: int) -> Any:
    return abr.put(np.arange(count, dtype="f4"))


@ray.remote
class Holder:
    """An actor that keeps shares and arrays."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def pid(self) -> int:
        return os.getpid()

    def keep(self, box: list[Any]) -> None:
        self.kept.append(box[0])

    def map(self) -> None:
        self.kept.append(self.kept[0].get())

    def memory(self) -> str:
        return memory_of(self.kept[-1])

    def drop(self, at: int) -> None:
        del self.kept[at]

    def sum(self, at: int) -> float:
        return float(self.kept[at].get().sum())

    def fails(self, share: Any) -> str:
        """Gets a share that has ended while it holds another one."""
        gc.disable()
        try:
            self.kept.pop().get()
        except BrokerError as error:
            return type(error).__name__ + str(share.nbytes)
        return ""

    def mapped(self) -> float:
        return float(self.kept[-1].sum())

    def make(self, count: int) -> Any:
        return abr.put(np.ones(count, "u1"))
