# SPDX-License-Identifier: Apache-2.0
"""Transports of arrays between processes behind one interface: ours, a handwritten ring, and peers from PyPI.

Each process of a pipeline makes one Transport. A sender has `room()` (memory for a frame, and a handle; only if
`in_place`), `send(handle)`, `send_copy(frame)` and `forward(array, handle)`, the cheapest correct way to pass on what a
receiver of the same transport got. A receiver has `receive()` and `release(handle)`. Frames are one-dimensional uint8.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PATIENCE_S = 10
Frame = Any  # an array of uint8


def retried(work: Callable[[], Any], *errors: type[Exception]) -> Any:
    """The result of `work` as soon as the other side is ready; its error after PATIENCE_S."""
    caught = errors or (Exception,)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return work()
        except caught:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


class Pipe:
    """A named pipe of fixed-size messages, opened by both sides in both directions, so that opening does not block."""

    def __init__(self, file: Path, width: int = 64) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(file)
        self.fd = os.open(file, os.O_RDWR)
        self.width = width

    def put(self, text: str = "") -> None:
        os.write(self.fd, text.encode().ljust(self.width))

    def get(self) -> str:
        return os.read(self.fd, self.width).decode().rstrip()


class Transport:
    environment = "pypi"  # of deploy/requirements/peers; "" is our own
    in_place = True  # a sender can provide memory to fill
    attaches = True  # hold and attach work

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.prefix = f"peers.{scratch.name}"  # of names that all processes of the host can see

    def pipe(self, name: str) -> Pipe:
        return Pipe(self.scratch / f"pipe.{name}")

    def sender(self, name: str, size: int, depth: int) -> Any:
        raise NotImplementedError

    def receiver(self, name: str, size: int, depth: int) -> Any:
        raise NotImplementedError

    def hold(self, size: int, fill: Callable[[Frame], None]) -> Any:
        """Makes one array for others to attach to, filled by `fill`; it exists as long as the result."""
        raise NotImplementedError

    def keep(self, held: Any) -> None:
        """Runs in the holder while others attach."""

    def attach(self, size: int) -> Frame:
        raise NotImplementedError

    def prepare(self) -> None:
        """Runs in a reader before the timing: import, connect."""


class CopyingSender:
    """`send_copy` and `forward` for transports without a cheaper way."""

    passes_on = False  # the last receiver, not the relay, releases a forwarded handle

    def room(self) -> tuple[Frame, Any]:
        raise NotImplementedError

    def send(self, handle: Any) -> None:
        raise NotImplementedError

    def send_copy(self, frame: Frame) -> None:
        array, handle = self.room()
        array[:] = frame
        del array
        self.send(handle)

    def forward(self, array: Frame, handle: Any) -> None:
        self.send_copy(array)


# Ours


class Arraybridge(Transport):
    environment = ""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        from arraybridge import Broker

        self.broker = Broker(str(scratch / "broker"), start="never")

    def sender(self, name: str, size: int, depth: int) -> Any:
        return ChannelSender(self.broker, self.broker.channel(name, capacity=depth).open("sender"), size)

    def receiver(self, name: str, size: int, depth: int) -> Any:
        return ChannelReceiver(self.broker.channel(name, capacity=depth).open("receiver"))

    def hold(self, size: int, fill: Callable[[Frame], None]) -> Any:
        array = self.broker.empty(size, "uint8", "numpy")
        fill(array)
        self.broker.put(array, name="large")
        self.broker.put(np.zeros(16), name="small")
        return array

    def prepare(self) -> None:
        self.broker.get("small", "numpy", wait=PATIENCE_S)

    def attach(self, size: int) -> Frame:
        return self.broker.get("large", "numpy")


class ChannelSender(CopyingSender):
    def __init__(self, broker: Any, channel: Any, size: int) -> None:
        self.broker, self.channel, self.size = broker, channel, size

    def room(self) -> tuple[Frame, Any]:
        array = self.broker.empty(self.size, "uint8", "numpy")
        return array, array

    def send(self, handle: Any) -> None:
        self.channel.send(handle)

    def send_copy(self, frame: Frame) -> None:
        self.channel.send(frame)


class ChannelReceiver:
    passes_on = False

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def receive(self) -> tuple[Frame, Any]:
        return self.channel.receive("numpy"), None

    def release(self, handle: Any) -> None:
        pass


class ArraybridgeTorch(Arraybridge):
    """Relays that receive tensors, each with a copy-on-write mapping of its own, and send them on."""

    attaches = False

    def sender(self, name: str, size: int, depth: int) -> Any:
        return TensorSender(self.broker, self.broker.channel(name, capacity=depth).open("sender"), size)

    def receiver(self, name: str, size: int, depth: int) -> Any:
        return TensorReceiver(self.broker.channel(name, capacity=depth).open("receiver"))


class TensorSender(ChannelSender):
    def forward(self, array: Frame, handle: Any) -> None:
        self.channel.send(handle)


class TensorReceiver(ChannelReceiver):
    def receive(self) -> tuple[Frame, Any]:
        tensor = self.channel.receive("torch")
        return tensor.numpy(), tensor


# A handwritten ring of SharedMemory slots


class Ring(Transport):
    """A handwritten ring: slots in one segment and two semaphores, used in turn. A slow or dead reader stops the ring;
    a released slot is reused even if another process still reads it.
    """

    environment = ""

    def prepare(self) -> None:
        from multiprocessing import resource_tracker, shared_memory as _  # noqa: F401

        resource_tracker.ensure_running()

    def segment(self, name: str, size: int = 0) -> Any:
        from multiprocessing import resource_tracker, shared_memory

        if size:
            with contextlib.suppress(FileNotFoundError):  # left by a producer that was killed
                shared_memory.SharedMemory(f"{self.prefix}.{name}").unlink()
            return shared_memory.SharedMemory(f"{self.prefix}.{name}", create=True, size=size)
        segment = retried(lambda: shared_memory.SharedMemory(f"{self.prefix}.{name}"), FileNotFoundError, ValueError)
        resource_tracker.unregister(f"/{self.prefix}.{name}", "shared_memory")  # otherwise its end in this process removes it for all
        return segment

    def semaphore(self, name: str, value: int | None = None) -> Any:
        from _multiprocessing import SemLock, sem_unlink

        called = f"/{self.prefix}.{name}"
        if value is not None:
            with contextlib.suppress(FileNotFoundError):
                sem_unlink(called)
            return SemLock(1, value, 1 << 30, called, False)
        return retried(lambda: SemLock._rebuild(0, 1, 1 << 30, called), OSError)

    def sender(self, name: str, size: int, depth: int) -> Any:
        return RingEnd(
            self.segment(name, size * depth), size, depth, self.semaphore(f"{name}.free", depth), self.semaphore(f"{name}.full", 0)
        )

    def receiver(self, name: str, size: int, depth: int) -> Any:
        free, full = self.semaphore(f"{name}.free"), self.semaphore(f"{name}.full")
        return RingEnd(self.segment(name), size, depth, free, full)

    def hold(self, size: int, fill: Callable[[Frame], None]) -> Any:
        segment = self.segment("large", size)
        fill(np.frombuffer(segment.buf, dtype="u1"))
        return segment

    def attach(self, size: int) -> Frame:
        self.attached = self.segment("large")
        return np.frombuffer(self.attached.buf, dtype="u1")


class RingEnd(CopyingSender):
    """The sending or the receiving end of a Ring."""

    def __init__(self, segment: Any, size: int, depth: int, free: Any, full: Any) -> None:
        self.segment, self.free, self.full = segment, free, full
        self.slots = np.frombuffer(segment.buf, dtype="u1")[: size * depth].reshape(depth, size)
        self.next = 0

    def turn(self) -> tuple[Frame, Any]:
        self.next += 1
        return self.slots[(self.next - 1) % len(self.slots)], None

    def room(self) -> tuple[Frame, Any]:
        self.free.acquire()
        return self.turn()

    def send(self, handle: Any) -> None:
        self.full.release()

    def receive(self) -> tuple[Frame, Any]:
        self.full.acquire()
        return self.turn()

    def release(self, handle: Any) -> None:
        self.free.release()


# Shared slots, whose numbers are sent through a pipe


class Slots(Transport):
    """Named arrays of a library; a relay passes on the number of a slot."""

    def create(self, name: str, size: int) -> Frame:
        raise NotImplementedError

    def open(self, name: str) -> Frame:
        raise NotImplementedError

    def sender(self, name: str, size: int, depth: int) -> Any:
        return SlotSender(self, name, size, depth)

    def receiver(self, name: str, size: int, depth: int) -> Any:
        return SlotReceiver(self, name)

    def hold(self, size: int, fill: Callable[[Frame], None]) -> Any:
        array = self.create("large", size)
        fill(array)
        return array

    def attach(self, size: int) -> Frame:
        return self.open("large")


class SlotSender(CopyingSender):
    def __init__(self, transport: Slots, name: str, size: int, depth: int) -> None:
        self.name = name
        self.slots = [transport.create(f"{name}.{number}", size) for number in range(depth + 1)]
        self.full, self.free = transport.pipe(f"{name}.full"), transport.pipe(f"{name}.free")
        for number in range(depth + 1):
            self.free.put(str(number))

    def room(self) -> tuple[Frame, Any]:
        number = int(self.free.get())
        return self.slots[number], (self.name, str(number))

    def send(self, handle: Any) -> None:
        self.full.put(" ".join(handle))

    def forward(self, array: Frame, handle: Any) -> None:
        self.send(handle)


class SlotReceiver:
    passes_on = True  # the last receiver releases a forwarded array

    def __init__(self, transport: Slots, name: str) -> None:
        self.transport, self.full = transport, transport.pipe(f"{name}.full")
        self.arrays: dict[tuple[str, str], Frame] = {}
        self.free: dict[str, Pipe] = {}

    def receive(self) -> tuple[Frame, Any]:
        name, number = self.full.get().split()
        if (name, number) not in self.arrays:
            self.arrays[name, number] = self.transport.open(f"{name}.{number}")
        return self.arrays[name, number], (name, number)

    def release(self, handle: Any) -> None:
        name, number = handle
        if name not in self.free:
            self.free[name] = self.transport.pipe(f"{name}.free")
        self.free[name].put(number)


class SharedArray(Slots):
    def prepare(self) -> None:
        import SharedArray as _  # noqa: F401

    def create(self, name: str, size: int) -> Frame:
        import SharedArray as library

        with contextlib.suppress(OSError):
            library.delete(f"shm://{self.prefix}.{name}")
        return library.create(f"shm://{self.prefix}.{name}", size, dtype="u1")

    def open(self, name: str) -> Frame:
        import SharedArray as library

        return library.attach(f"shm://{self.prefix}.{name}")


class Tensordict(Slots):
    environment = "tensordict"

    def prepare(self) -> None:
        import tensordict as _  # noqa: F401

    def create(self, name: str, size: int) -> Frame:
        import torch
        from tensordict import TensorDict

        torch.set_num_threads(1)
        frames = TensorDict({"frame": torch.zeros(size, dtype=torch.uint8)}, batch_size=[])
        return frames.memmap_(prefix=f"/dev/shm/{self.prefix}.{name}")["frame"].numpy()

    def open(self, name: str) -> Frame:
        from tensordict import TensorDict

        return TensorDict.load_memmap(f"/dev/shm/{self.prefix}.{name}")["frame"].numpy()
