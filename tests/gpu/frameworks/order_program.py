# SPDX-License-Identifier: Apache-2.0
"""A process that hands arrays on while the GPU still writes them, and reads such arrays: ``order_program.py ADDRESS``; each
input line is a function, each output line an answer.

A kernel delays the work of a stream. The simulated driver needs none: it runs all work late.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from program import serve

import arraybridge

COUNT = 1 << 16
OLD, NEW = 1.0, 2.0
DELAYS_MS = (300, 1200, 4800)  # more than a put takes; the longer ones are for a machine that is slow now
PER_THREAD = 2  # CUDA's name for the calling thread's own default stream
SIMULATED = "SIMULATED_CUDA" in os.environ
broker = arraybridge.Broker(sys.argv[1], start="never")
kept: list[Any] = []


class Torch:
    def __init__(self) -> None:
        import torch

        self.torch, self.cuda = torch, torch.cuda

    @contextlib.contextmanager
    def on(self, kind: str) -> Iterator[Any]:
        streams = {"default": self.cuda.default_stream, "side": self.cuda.Stream, "thread": lambda: self.cuda.ExternalStream(PER_THREAD)}
        with self.cuda.stream(streams[kind]()):
            yield self.cuda.current_stream()

    def new(self, value: float, stream: Any) -> Any:
        return self.torch.full((COUNT,), value).to("cuda")

    def delay(self, stream: Any, milliseconds: int) -> None:
        self.cuda._sleep(milliseconds * 2_000_000)

    def copy(self, to: Any, source: Any, stream: Any) -> Any:
        return to.copy_(source, non_blocking=True)

    def pending(self, stream: Any) -> bool:
        return not stream.query()

    def synchronize(self) -> None:
        self.cuda.synchronize()

    def values(self, array: Any, stream: Any) -> Any:
        return array.cpu().numpy()


class Numba:
    """Its arrays carry their stream; there is no current one."""

    def __init__(self) -> None:
        from numba import cuda

        def spin(milliseconds: int) -> None:
            for _ in range(milliseconds):
                cuda.nanosleep(1_000_000)

        self.cuda = cuda
        self.spin = None if SIMULATED else cuda.jit("void(int64)")(spin)

    @contextlib.contextmanager
    def on(self, kind: str) -> Iterator[Any]:
        yield {"default": self.cuda.default_stream, "side": self.cuda.stream, "thread": self.cuda.per_thread_default_stream}[kind]()

    def new(self, value: float, stream: Any) -> Any:
        return self.cuda.to_device(np.full(COUNT, value, np.float32), stream=stream)

    def delay(self, stream: Any, milliseconds: int) -> None:
        self.spin[1, 1, stream](milliseconds)  # type: ignore[index]

    def copy(self, to: Any, source: Any, stream: Any) -> Any:
        to.copy_to_device(source, stream=stream)
        return to

    def pending(self, stream: Any) -> bool:
        reached = self.cuda.event(timing=False)
        reached.record(stream)
        return not reached.query()

    def synchronize(self) -> None:
        self.cuda.synchronize()

    def values(self, array: Any, stream: Any) -> Any:
        values = array.copy_to_host()
        self.cuda.synchronize()  # an array with a stream of its own is copied later
        return values


class Cupy:
    SPIN = """extern "C" __global__ void spin(long long nanoseconds) {
      unsigned long long begun, now;
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
      do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - begun < nanoseconds);
    }"""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self.spin = None if SIMULATED else cupy.RawKernel(self.SPIN, "spin")

    @contextlib.contextmanager
    def on(self, kind: str) -> Iterator[Any]:
        stream = self.cupy.cuda.Stream
        with {"default": stream.null, "side": stream(non_blocking=True), "thread": stream.ptds}[kind] as current:
            yield current

    def new(self, value: float, stream: Any) -> Any:
        return self.cupy.asarray(np.full(COUNT, value, np.float32))

    def delay(self, stream: Any, milliseconds: int) -> None:
        self.spin((1,), (1,), (np.int64(milliseconds * 1_000_000),))  # type: ignore[misc]

    def copy(self, to: Any, source: Any, stream: Any) -> Any:
        to.data.copy_from_device_async(source.data, source.nbytes)
        return to

    def pending(self, stream: Any) -> bool:
        return not stream.done

    def synchronize(self) -> None:
        self.cupy.cuda.runtime.deviceSynchronize()

    def values(self, array: Any, stream: Any) -> Any:
        return self.cupy.asnumpy(array)


class Jax:
    """Its arrays never change, and it has no streams: the array is a new one, after a long computation."""

    SIDES = {"cpu": 256, "gpu": 8192}  # of a matrix: a product takes some milliseconds

    def __init__(self) -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        def products(matrix: Any, count: Any) -> Any:
            return jax.lax.fori_loop(0, count, lambda _, product: product @ matrix, matrix).sum()

        self.jax = jax
        self.slow = self.last = None
        self.products = jax.jit(products)
        side = self.SIDES[jax.default_backend()]
        self.matrix = jax.numpy.zeros((side, side), jax.numpy.float32)
        if not SIMULATED:
            (self.new(OLD, None) + self.products(self.matrix, 1)).block_until_ready()  # compiled before it counts
            begun = time.perf_counter()
            self.products(self.matrix, 1).block_until_ready()
            self.product_ms = 1000 * (time.perf_counter() - begun)

    @contextlib.contextmanager
    def on(self, kind: str) -> Iterator[Any]:
        yield None

    def new(self, value: float, stream: Any) -> Any:
        return self.jax.device_put(np.full(COUNT, value, np.float32)).block_until_ready()

    def delay(self, stream: Any, milliseconds: int) -> None:
        self.slow = self.products(self.matrix, 1 + int(milliseconds / self.product_ms))  # 0, later

    def copy(self, to: Any, source: Any, stream: Any) -> Any:
        self.last = source if self.slow is None else source + self.slow
        return self.last

    def pending(self, stream: Any) -> bool:
        return not self.last.is_ready()

    def synchronize(self) -> None:
        """Reading an array waits for it."""

    def values(self, array: Any, stream: Any) -> Any:
        return np.asarray(array)


KNOWN = {"torch": Torch, "numba": Numba, "cupy": Cupy, "jax": Jax}
made: dict[str, Any] = {}


def framework(name: str) -> Any:
    return made[name] if name in made else made.setdefault(name, KNOWN[name]())


def judged(values: Any, wanted: float) -> str:
    return "right" if bool((values == wanted).all()) else f"wrong: {sorted(set(values.tolist()))}"


def queued(gpu: Any, stream: Any, to: Any, source: Any) -> Any:
    """A copy of the source that waits behind a delay on this stream. The delay of a machine that was too slow is repeated, longer."""
    for milliseconds in DELAYS_MS:
        if not SIMULATED:
            gpu.delay(stream, milliseconds)
        copy = gpu.copy(to, source, stream)
        if SIMULATED or gpu.pending(stream):
            return copy
    raise AssertionError("each delay has ended before the copy was queued")


def hand_on(name: str, of: str, kind: str, verb: str) -> str:
    """Hands an array on while work on this stream writes it. No call here waits for that work."""
    gpu = framework(of)
    with gpu.on(kind) as stream:
        source, array = gpu.new(NEW, stream), gpu.new(OLD, stream)
        gpu.synchronize()
        array = queued(gpu, stream, array, source)
        if verb == "put":
            broker.put(array, name)
        elif verb == "put_later":
            broker.put(array, name, wait=False)
        elif verb == "send":
            broker.channel(name).send(array)
        else:
            asyncio.run(broker.channel(name).asend(array))
        kept.append((array, source))
    return "ok"


def read(name: str, of: str, kind: str, verb: str) -> str:
    """Reads what was handed on, by work on this stream."""
    gpu = framework(of)
    with gpu.on(kind) as stream:
        sent = verb in ("send", "asend")
        array = broker.channel(name).receive(of, timeout=60) if sent else broker.get(name, of, wait=60)
        return judged(gpu.values(array, stream), NEW)


def read_late(name: str, of: str, kind: str) -> str:
    """Queues a copy of a share behind a delay, and gives the share back before that has run."""
    gpu = framework(of)
    with gpu.on(kind) as stream:
        own = gpu.new(OLD, stream)
        gpu.synchronize()
        own = queued(gpu, stream, own, broker.get(name, of))
        kept.append((gpu, own, stream))
    return "ok"


def copied() -> str:
    gpu, own, stream = kept.pop()
    gpu.synchronize()
    return judged(gpu.values(own, stream), NEW)


def put_complete(name: str, of: str, value: str) -> str:
    """Replaces the share, whose memory is then free for the next one."""
    gpu = framework(of)
    with gpu.on("default") as stream:
        array = gpu.new(float(value), stream)
        gpu.synchronize()
        broker.put(array, name, replace=True)
    return "ok"


def forget() -> str:
    kept.clear()
    return "ok"


serve(hand_on, read, read_late, copied, put_complete, forget)
