# SPDX-License-Identifier: Apache-2.0
"""get, put, send and receive from Python beside their peers: torch.multiprocessing, SharedMemory, pickle over a pipe.

Prints one JSON object per line, as the C++ programs do. tests/bench/run starts it, pins it to CPU 0, and passes the CPU
of the other side.

A hop of a peer is measured as its users see it: the producer sends, the consumer receives an array and answers one
byte. `get` is measured in a process that has the share's arena mapped, as a consumer has after its first get.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any

import numpy as np

MIB = 1 << 20


def emit(row: str, **numbers: float) -> None:
    print(json.dumps({"id": row, **numbers}), flush=True)


def interleaved(rounds: int, per_round: int, *works: Callable[[], Any]) -> list[float]:
    """Median microseconds of each work, all measured in turn under the same load."""
    times: list[list[float]] = [[] for _ in works]
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for own, work in zip(times, works, strict=True):
            for _ in range(per_round):
                start = time.perf_counter_ns()
                work()
                own.append((time.perf_counter_ns() - start) / 1000)
    gc.enable()
    return [statistics.median(own) for own in times]


def importer(framework: str) -> Callable[[Any], Any]:
    """The framework's own import of a View, without our code: the floor of get."""
    if framework == "numpy":
        return np.from_dlpack
    if framework == "torch":
        import torch

        return torch.from_dlpack
    if framework == "jax":
        import jax

        return jax.dlpack.from_dlpack
    import tensorflow

    return lambda view: tensorflow.experimental.dlpack.from_dlpack(view.__dlpack__())


def touch(array: Any) -> int:
    """Reads one byte of every page, for any framework."""
    flat = np.asarray(array).reshape(-1).view(np.uint8)
    return int(flat[::4096].sum())


def bench_get(address: str, framework: str, rounds: int) -> None:
    import arraybridge

    source = np.arange(MIB // 4, dtype=np.float32)
    with arraybridge.Broker(address, namespace="bench") as writer, arraybridge.Broker(address, namespace="bench") as reader:
        name = f"get_{framework}"
        writer.put(source, name=name, replace=True)
        take = importer(framework)
        kept = reader.get(name, framework)  # mapped from here on
        # The View that get passes to this framework, made once: only the import is timed beside get.
        _, views = reader._connection.core().acquire(name, private=framework == "torch")
        view = views[0].for_immutable_consumer()
        get, get_touched, bare = interleaved(
            rounds,
            100,
            lambda: reader.get(name, framework),
            lambda: touch(reader.get(name, framework)),
            lambda: take(view),
        )
        emit(f"get_{framework}", value=get, touched=get_touched, framework_import=bare)
        if framework == "numpy":  # by now shares are found and held without calls
            emit("view_numpy", value=get, floor=bare)
        if framework == "torch":
            shared, bare = interleaved(rounds, 100, lambda: reader.get(name, "torch", access="shared"), lambda: take(view))
            emit("view_torch", value=shared, floor=bare)
            emit("view_torch_private", value=get, floor=bare)
        del kept, views, view
        writer.withdraw(name)


def bench_put(address: str, rounds: int) -> None:
    import arraybridge

    source = np.ones(64 * MIB // 4, dtype=np.float32)
    floor = shared_memory.SharedMemory(create=True, size=64 * MIB)
    target = np.frombuffer(floor.buf, dtype=np.float32)
    target[:] = 0
    with arraybridge.Broker(address, namespace="bench") as broker:
        for _ in range(4):
            broker.put(source, name="large", replace=True)
        copy, put = interleaved(rounds, 1, lambda: np.copyto(target, source), lambda: broker.put(source, name="large", replace=True))
        emit("put_64mib_python", floor=copy, value=put)
        broker.withdraw("large")
    del target
    floor.close()
    floor.unlink()


def bench_unwaited(address: str, rounds: int) -> None:
    """Unwaited puts of 4 KiB, in bursts of a quarter of a session queue."""
    import arraybridge

    burst = 64
    source = np.ones(1024, dtype=np.float32)
    names = [f"pipeline/stage-0000/frame-{100 + number}" for number in range(burst)]
    target = np.zeros((burst, 1024), dtype=np.float32)
    floors, values, sustained = [], [], []
    with arraybridge.Broker(address, namespace="bench") as broker:
        for turn in range(rounds * 20 + 3):
            before = broker.stats()["client_unwaited_publishes"]
            gc.disable()
            start = time.perf_counter_ns()
            for room in target:
                np.copyto(room, source)
            copied = time.perf_counter_ns()
            for name in names:
                broker.put(source, name, wait=False)
            put = time.perf_counter_ns()
            broker._connection.confirm()
            taken = time.perf_counter_ns()
            gc.enable()
            if turn >= 3:  # the queue exists, the arena is warm
                assert broker.stats()["client_unwaited_publishes"] == before + burst
                floors.append((copied - start) / burst / 1000)
                values.append((put - copied) / burst / 1000)
                sustained.append((taken - copied) / burst / 1000)
            for name in names:
                broker.withdraw(name)
    emit(
        "ring_put_4kib_python",
        floor=statistics.median(floors),
        value=statistics.median(values),
        sustained=statistics.median(sustained),
    )


def bench_channel(address: str, rounds: int) -> None:
    """The calls of a hand-off of 4 KiB, without waiting, in bursts as bench_channel.cc does."""
    import arraybridge

    burst = 8
    source = np.ones(1024, dtype=np.float32)
    with arraybridge.Broker(address, namespace="bench") as broker, arraybridge.Broker(address, namespace="bench") as other:
        sender, receiver = broker.channel("calls").open("sender"), other.channel("calls").open("receiver")

        def send() -> None:
            for _ in range(burst):
                sender.send(source)

        def send_in_place() -> None:
            for _ in range(burst):
                sender.send(broker.empty(1024, "float32"))

        def receive() -> None:
            for _ in range(burst):
                receiver.receive()

        works = {"send": send, "send_in_place": send_in_place, "receive": receive}
        for _ in range(200 // burst):  # from here on the direct channel exists
            send()
            receive()
        found: dict[str, list[float]] = {name: [] for name in works}
        gc.collect()
        gc.disable()
        for _ in range(rounds * 100):
            for name in ("send", "receive", "send_in_place", "receive"):
                start = time.perf_counter_ns()
                works[name]()
                found[name].append((time.perf_counter_ns() - start) / burst / 1000)
        gc.enable()
        assert other.stats()["client_direct_shares"] > rounds * 100 * burst
    for name, times in found.items():
        emit(f"python_{name}", value=statistics.median(times))


# Peers. Each consumer is a spawned process that receives, reads no byte or one per page, and acknowledges.


def consume(queue: Any, pipe: Any, cpu: int, kind: str, strategy: str) -> None:
    os.sched_setaffinity(0, {cpu})
    if kind == "torch":
        import torch.multiprocessing

        torch.set_num_threads(1)
        torch.multiprocessing.set_sharing_strategy(strategy)
    segment: shared_memory.SharedMemory | None = None
    pipe.send(b"r")
    while True:
        if kind == "torch":
            item = queue.get()
        else:
            item = pipe.recv()
        if item is None:
            return
        if kind in ("segment", "reused"):
            name, size = item
            if segment is None or segment.name != name:
                if segment is not None:
                    segment.close()
                segment = shared_memory.SharedMemory(name)
            array = np.frombuffer(segment.buf, dtype=np.float32, count=size)
            del array
        del item
        pipe.send(b"k")


def hop(kind: str, strategy: str, size: int, new: bool, rounds: int, cpu: int) -> float:
    """Median microseconds from sending an array to the consumer's acknowledgement."""
    context = multiprocessing.get_context("spawn")
    queue: Any = None
    if kind == "torch":
        import torch
        import torch.multiprocessing

        torch.set_num_threads(1)
        torch.multiprocessing.set_sharing_strategy(strategy)
        queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    ours, theirs = context.Pipe()
    consumer = context.Process(target=consume, args=(queue, theirs, cpu, kind, strategy), daemon=True)
    consumer.start()
    ours.recv()
    source = np.ones(size // 4, dtype=np.float32)
    alive: list[Any] = []
    if kind == "torch":
        tensor = torch.from_numpy(source)
        shared = tensor.clone().share_memory_()

        def send() -> None:
            queue.put(tensor.clone() if new else shared)
            ours.recv()
    elif kind == "segment":

        def send() -> None:
            for old in alive:
                old.close()
                old.unlink()
            alive.clear()
            segment = shared_memory.SharedMemory(create=True, size=size)
            alive.append(segment)
            np.copyto(np.frombuffer(segment.buf, dtype=np.float32, count=size // 4), source)
            ours.send((segment.name, size // 4))
            ours.recv()
    elif kind == "reused":
        segment = shared_memory.SharedMemory(create=True, size=size)
        alive.append(segment)
        target = np.frombuffer(segment.buf, dtype=np.float32, count=size // 4)

        def send() -> None:
            np.copyto(target, source)
            ours.send((segment.name, size // 4))
            ours.recv()
    else:

        def send() -> None:
            ours.send(source)
            ours.recv()

    for _ in range(3):
        send()
    (median,) = interleaved(rounds, 1 if size > MIB else 20, send)
    if kind == "torch":
        queue.put(None)
    else:
        ours.send(None)
    consumer.join()
    if kind == "reused":
        del target
    for old in alive:
        old.close()
        old.unlink()
    return median


def bench_peers(rounds: int, cpu: int, largest_mib: int) -> None:
    for size, label in ((MIB, "1mib"), (64 * MIB, "64mib")):
        if size > largest_mib * MIB:
            continue
        for strategy in ("file_descriptor", "file_system"):
            emit(f"peer_torch_{strategy}_resend_{label}", value=hop("torch", strategy, size, False, rounds, cpu))
            emit(f"peer_torch_{strategy}_new_{label}", value=hop("torch", strategy, size, True, rounds, cpu))
        emit(f"peer_shared_memory_fresh_{label}", value=hop("segment", "", size, True, rounds, cpu))
        emit(f"peer_shared_memory_reused_{label}", value=hop("reused", "", size, True, rounds, cpu))
        emit(f"peer_pipe_pickle_{label}", value=hop("pipe", "", size, True, rounds, cpu))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["numpy", "torch", "jax", "tensorflow", "put", "unwaited", "channel", "peers"])
    parser.add_argument("--address", default="")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cpu", type=int, default=0, help="where the consumers of peers run")
    parser.add_argument("--largest-mib", type=int, default=64, help="of what peers pass")
    wish = parser.parse_args()
    if wish.what == "peers":
        bench_peers(wish.rounds, wish.cpu, wish.largest_mib)
    elif wish.what == "put":
        bench_put(wish.address, wish.rounds)
    elif wish.what == "unwaited":
        bench_unwaited(wish.address, wish.rounds)
    elif wish.what == "channel":
        bench_channel(wish.address, wish.rounds)
    else:
        bench_get(wish.address, wish.what, wish.rounds)


if __name__ == "__main__":
    main()
