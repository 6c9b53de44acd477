# SPDX-License-Identifier: Apache-2.0
"""One process of a pipeline: stage.py TRANSPORT WORK ROLE SCRATCH [--rounds N]. pipelines.py starts them.

Works: `hop` (4 KiB there and back), `frames` (1920 x 1080 x 3 bytes, filled in place, or `frames_copied` in), `relay`
(the same over two relays), `attach` (1 GiB, by several readers), `kill` (a frame whose producer is killed). A stage
says "ready", waits for "go", prints its result as a line of JSON and ends at "end".
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HOP_BYTES = 4096
FRAME_BYTES = 1920 * 1080 * 3
LARGE_BYTES = 1 << 30
DEPTH = 8
WARM_UP = 100  # of every work; more frames than a transport has in memory, whose first touch takes milliseconds
TRANSPORTS = {
    "arraybridge": "transports.Arraybridge",
    "arraybridge-torch": "transports.ArraybridgeTorch",
    "ring": "transports.Ring",
    "sharedarray": "transports.SharedArray",
    "tensordict": "transports.Tensordict",
    "torch": "messaging.TorchQueue",
    "iceoryx2": "messaging.Iceoryx2",
    "zenoh": "messaging.Zenoh",
    "pyzmq": "messaging.Zmq",
    "vineyard": "messaging.Vineyard",
}


def kind_of(name: str) -> Any:
    module, _, kind = TRANSPORTS[name].rpartition(".")
    return getattr(importlib.import_module(module), kind)


def private(size: int) -> Any:
    """A frame outside of the transport; over a bytearray, which Zenoh reads without another copy."""
    return np.frombuffer(bytearray(size), dtype="u1")


def stamp(frame: Any, number: int) -> None:
    frame.fill(number & 255)
    frame[:8].view("<i8")[0] = number


def check(frame: Any, number: int) -> None:
    seen = int(frame[:8].view("<i8")[0]), int(frame[100]), int(frame[frame.size // 2]), int(frame[-1])
    assert seen == (number, *[number & 255] * 3), f"frame {number} came as {seen}"


def pss_mib() -> float:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def rights_of(array: Any) -> str:
    """The effect of a write by the reader, judged by the mapping that contains the array."""
    at = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights, *_ = line.split()
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= at < high:
            break
    if rights[3] == "p":
        return "its own copy"
    if rights[1] != "w":
        return "refused by NumPy and the kernel" if not array.flags.writeable else "refused by the kernel: SIGSEGV"
    return "everybody's frame" if array.flags.writeable else "everybody's frame, past NumPy's flag"


class Stage:
    def __init__(self, transport: Any, work: str, rounds: int) -> None:
        self.transport, self.work, self.rounds = transport, work, rounds
        self.ready, self.go, self.end = (transport.pipe(name) for name in ("ready", "go", "end"))
        self.received = 0

    def start(self) -> None:
        self.ready.put()
        self.go.get()

    def done(self, **result: Any) -> None:
        print(json.dumps(result), flush=True)
        self.end.get()
        os._exit(0)  # without waiting for threads of a library

    def fill_and_send(self, to: Any, number: int, frame: Any) -> None:
        if frame is not None:
            stamp(frame, number)
            to.send_copy(frame)
            return
        array, handle = to.room()
        stamp(array, number)
        del array
        to.send(handle)

    def take(self, source: Any, number: int) -> None:
        array, handle = source.receive()
        check(array, number)
        del array
        source.release(handle)

    def hop_producer(self) -> None:
        there, back = self.transport.sender("there", HOP_BYTES, 2), self.transport.receiver("back", HOP_BYTES, 2)
        frame = private(HOP_BYTES)
        self.start()
        times = []
        for number in range(WARM_UP * 10 + self.rounds * 100):
            begun = time.perf_counter_ns()
            self.fill_and_send(there, number, frame)
            self.take(back, number)
            times.append((time.perf_counter_ns() - begun) / 2000)
        self.done(value=statistics.median(times[WARM_UP * 10 :]))

    def hop_echo(self) -> None:
        there, back = self.transport.receiver("there", HOP_BYTES, 2), self.transport.sender("back", HOP_BYTES, 2)
        frame = private(HOP_BYTES)
        self.start()
        for number in range(WARM_UP * 10 + self.rounds * 100):
            self.take(there, number)
            self.fill_and_send(back, number, frame)
        self.done()

    def frames_producer(self) -> None:
        to = self.transport.sender("first", FRAME_BYTES, DEPTH)
        copied = self.work == "frames_copied" or not self.transport.in_place
        frame = private(FRAME_BYTES) if copied else None
        self.start()
        for number in itertools.count():
            self.fill_and_send(to, number, frame)

    def frames_consumer(self, name: str = "first") -> None:
        source = self.transport.receiver(name, FRAME_BYTES, DEPTH)
        self.start()
        self.microseconds(source, WARM_UP)
        self.done(value=self.microseconds(source, self.rounds * 10))

    def microseconds(self, source: Any, least: int) -> float:
        """What each of the next frames takes: of at least this number, and of 0.1 s for each round. With the 15 rounds of a
        whole benchmark the first second, in which a daemon also prepares memory for later, is over then.
        """
        begun = now = time.perf_counter_ns()
        first = self.received
        while self.received - first < least or now < begun + self.rounds * 100_000_000:
            self.take(source, self.received)
            self.received += 1
            now = time.perf_counter_ns()
        return (now - begun) / 1000 / (self.received - first)

    def relay_producer(self) -> None:
        self.frames_producer()

    def relay_consumer(self) -> None:
        self.frames_consumer("third")

    def relay(self, source_name: str, to_name: str) -> None:
        source = self.transport.receiver(source_name, FRAME_BYTES, DEPTH)
        to = self.transport.sender(to_name, FRAME_BYTES, DEPTH)
        self.start()
        for number in itertools.count():
            array, handle = source.receive()
            check(array, number)
            to.forward(array, handle)
            del array
            if not source.passes_on:
                source.release(handle)
            del handle

    def relay_one(self) -> None:
        self.relay("first", "second")

    def relay_two(self) -> None:
        self.relay("second", "third")

    def attach_holder(self) -> None:
        def fill(array: Any) -> None:
            array.view("<i8")[::512] = 7
            array[-1] = 77

        held = self.transport.hold(LARGE_BYTES, fill)
        self.ready.put()
        self.transport.keep(held)
        self.end.get()

    def attach_reader(self) -> None:
        self.transport.prepare()
        self.start()
        before = pss_mib()
        begun = time.perf_counter_ns()
        array = self.transport.attach(LARGE_BYTES)
        last = int(array[-1])
        took = (time.perf_counter_ns() - begun) / 1000
        assert last == 77 and int(array.view("<i8")[::512].sum()) == 7 * (LARGE_BYTES // 4096)
        self.ready.put()
        self.transport.pipe("measure").get()  # every reader has read all of it
        self.done(value=took, pss_mib=pss_mib() - before)

    def kill_producer(self) -> None:
        to = self.transport.sender("first", FRAME_BYTES, 3)
        frame = private(FRAME_BYTES)
        self.start()
        for number in range(5, 5 + self.rounds):
            self.fill_and_send(to, number, frame)
        self.ready.put()
        self.end.get()

    def kill_consumer(self) -> None:
        source = self.transport.receiver("first", FRAME_BYTES, 3)
        self.start()
        array, handle = source.receive()
        check(array, 5)
        self.ready.put()  # the frame is held
        self.go.get()  # its producer is dead, and another one has sent as many frames as it could
        intact = bool((array[8:] == 5).all())
        del handle
        self.done(intact=intact, reader_writes=rights_of(array))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("transport", choices=TRANSPORTS)
    parser.add_argument("work")
    parser.add_argument("role")
    parser.add_argument("scratch", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    wish = parser.parse_args()
    stage = Stage(kind_of(wish.transport)(wish.scratch), wish.work, wish.rounds)
    getattr(stage, wish.role)()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    main()
