# SPDX-License-Identifier: Apache-2.0
"""One process of the demo: it gets an array from the broker with one framework, or puts one, and reports the result.

Started by demo.py as ``hop.py FRAMEWORK ADDRESS FIRST ACTION...`` where an action is one of

    put NAME ELEMENTS            a new array FIRST, FIRST + 1, ... of the framework, copied into broker memory
    get NAME FACTOR              the array NAME, which must hold FACTOR times these numbers
    double NAME FACTOR RESULT    get NAME, write twice of it into an array born in broker memory, put that as RESULT

Each action prints one line of JSON. ``place`` is the place of the framework's own pointer: the number of the memory
file that is mapped there and the position in it. Two processes that report the same place read the same physical bytes.
"""

import json
import sys
import time
from typing import Any

from arraybridge import Broker


class Numpy:
    def __init__(self) -> None:
        import numpy

        self.lib = numpy

    def counting(self, first: int, elements: int) -> Any:
        return self.lib.arange(first, first + elements, dtype=self.lib.int32)

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def equal(self, array: Any, expected: Any) -> bool:
        return bool(self.lib.array_equal(array, expected))


class Torch:
    def __init__(self) -> None:
        import torch

        self.lib = torch

    def counting(self, first: int, elements: int) -> Any:
        return self.lib.arange(first, first + elements, dtype=self.lib.int32)

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def equal(self, array: Any, expected: Any) -> bool:
        return bool(self.lib.equal(array, expected))

    def double_into(self, array: Any, result: Any) -> None:
        self.lib.mul(array, 2, out=result)


class Jax:
    def __init__(self) -> None:
        import jax.numpy

        self.lib = jax.numpy

    def counting(self, first: int, elements: int) -> Any:
        return self.lib.arange(first, first + elements, dtype=self.lib.int32)

    def address(self, array: Any) -> int:
        return int(array.unsafe_buffer_pointer())

    def equal(self, array: Any, expected: Any) -> bool:
        return bool(self.lib.array_equal(array, expected))


class Tensorflow:
    def __init__(self) -> None:
        import numpy
        import tensorflow

        self.lib, self.numpy = tensorflow, numpy

    def counting(self, first: int, elements: int) -> Any:
        return self.lib.range(first, first + elements, dtype=self.lib.int32)

    def address(self, array: Any) -> int:
        # The buffer of an eager tensor is its own memory; numpy() would copy.
        return int(self.numpy.frombuffer(memoryview(array), dtype=self.numpy.int32).ctypes.data)

    def equal(self, array: Any, expected: Any) -> bool:
        return bool(self.lib.reduce_all(self.lib.equal(array, expected)))


FRAMEWORKS = {"numpy": Numpy, "torch": Torch, "jax": Jax, "tensorflow": Tensorflow}


def place_of(address: int) -> str | None:
    """Memory file and position of an address of this process; None if no memory file is mapped there."""
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            span, _, offset, _, inode, *path = line.split(maxsplit=5)
            begin, end = (int(part, 16) for part in span.split("-"))
            if begin <= address < end:
                in_memory_file = bool(path) and path[0].startswith("/memfd:")
                return f"{inode}+{address - begin + int(offset, 16)}" if in_memory_file else None
    return None


class Hop:
    """The actions, for one framework and one connection."""

    def __init__(self, framework: str, address: str, first: int) -> None:
        self.name = framework
        self.first = first
        self.framework: Any = FRAMEWORKS[framework]()
        self.broker = Broker(address=address)

    def put(self, name: str, elements: str) -> dict[str, Any]:
        array = self.framework.counting(self.first, int(elements))
        begun = time.perf_counter()
        self.broker.put(array, name)
        elapsed = time.perf_counter() - begun
        seen = self.broker.get(name, self.name)
        return self.report("put", name, "place", 1, elapsed, array, seen)

    def get(self, name: str, factor: str) -> dict[str, Any]:
        begun = time.perf_counter()
        array, plan = self.broker.get(name, self.name, wait=60, explain=True)
        elapsed = time.perf_counter() - begun
        expected = self.framework.counting(self.first, array.shape[0]) * int(factor)
        return self.report("get", name, plan.route, plan.copies, elapsed, expected, array, plan.reasons)

    def double(self, name: str, factor: str, result: str) -> dict[str, Any]:
        array = self.broker.get(name, self.name, wait=60)
        born = self.broker.empty(tuple(array.shape), "int32", self.name)
        self.framework.double_into(array, born)
        begun = time.perf_counter()
        self.broker.put(born, result)
        elapsed = time.perf_counter() - begun
        seen = self.broker.get(result, self.name)
        copies = 0 if place_of(self.framework.address(born)) == place_of(self.framework.address(seen)) else 1
        expected = self.framework.counting(self.first, array.shape[0]) * (2 * int(factor))
        return self.report("put", result, "in place" if copies == 0 else "place", copies, elapsed, expected, seen)

    def report(
        self, verb: str, name: str, route: str, copies: int, elapsed_s: float, expected: Any, array: Any, reasons: Any = ()
    ) -> dict[str, Any]:
        return {
            "framework": self.name,
            "verb": verb,
            "name": name,
            "route": route,
            "copies": copies,
            "bytes": 4 * int(array.shape[0]),
            "elapsed_us": elapsed_s * 1e6,
            "content": self.framework.equal(array, expected),
            "place": place_of(self.framework.address(array)),
            "reasons": [str(reason) for reason in reasons],
        }


def main(framework: str, address: str, first: str, *words: str) -> None:
    hop = Hop(framework, address, int(first))
    actions = {"put": (hop.put, 2), "get": (hop.get, 2), "double": (hop.double, 3)}
    rest = list(words)
    while rest:
        action, count = actions[rest.pop(0)]
        arguments, rest = rest[:count], rest[count:]
        print(json.dumps(action(*arguments)), flush=True)
    # Keeps its arrays until the demo is over.
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
