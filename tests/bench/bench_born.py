# SPDX-License-Identifier: Apache-2.0
"""Arrays that frameworks make in broker memory beside ordinary ones: their put, small arrays in the block, and pipelines.

Prints one JSON object per line, as bench_python.py does. `born_step` is a pipeline of NumPy, or of OpenCV where that is
installed, on frames of 1080p, `born_step_torch` a training step; both sides are measured in turn. A framework that is not
installed has no rows.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench_python import MIB, emit

import arraybridge


def timed(work: Callable[[], Any], count: int) -> float:
    """Microseconds of one of `count` calls."""
    start = time.perf_counter_ns()
    for _ in range(count):
        work()
    return (time.perf_counter_ns() - start) / count / 1000


def in_turn(broker: arraybridge.Broker, rounds: int, count: int, work: Callable[[], Any], framework: Any = "numpy") -> tuple[float, float]:
    """The medians in a block, and outside of it."""
    inside, outside = [], []
    work()
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        outside.append(timed(work, count))
        with broker.born(framework, reserve_bytes=256 * MIB):
            inside.append(timed(work, count))
    gc.enable()
    return statistics.median(inside), statistics.median(outside)


def bench_put(broker: arraybridge.Broker, rounds: int) -> None:
    """`touched`: of arrays that were just written, so that no cache has what a put needs."""
    source = np.ones(64 * MIB // 4, np.float32)
    makers: dict[str, Callable[[], Any]] = {"value": lambda: np.empty_like(source), "touched": lambda: source + 1}
    found: dict[str, list[float]] = {name: [] for name in ("floor", *makers)}
    with broker.born("numpy", reserve_bytes=256 * MIB) as born:
        for turn in range(3 + rounds):
            for name, make in {"floor": lambda: source, **makers}.items():
                array = make()
                took = timed(lambda array=array, name=name: broker.put(array, name, replace=True), 1)  # type: ignore[misc]
                assert array.flags.writeable == (name == "floor"), "it was copied, or the source was not"
                del array
                if turn >= 3:
                    found[name].append(took)
    assert born.missed == {}, born
    emit("born_put", **{name: statistics.median(times) for name, times in found.items()})
    for name in found:
        broker.withdraw(name)


def of_torch() -> tuple[Any, Callable[[], Any]]:
    import torch

    source = torch.ones(64 * MIB // 4)
    return source, lambda: source + 1


def of_jax() -> tuple[Any, Callable[[], Any]]:
    import jax

    source = jax.numpy.ones(64 * MIB // 4)
    return source, lambda: (source + 1).block_until_ready()


def of_cv2() -> tuple[Any, Callable[[], Any]]:
    import cv2

    source = np.ones((4096, 4096), np.float32)
    return source, lambda: cv2.add(source, source)


def bench_put_of(broker: arraybridge.Broker, rounds: int, row: str, framework: Any, made: tuple[Any, Callable[[], Any]]) -> None:
    """The put of what a framework just wrote, and of an array from before the block."""
    source, make = made
    found: dict[str, list[float]] = {"floor": [], "value": []}
    with broker.born(framework, reserve_bytes=256 * MIB) as born:
        for turn in range(3 + rounds):
            for name in found:
                array = source if name == "floor" else make()
                took = timed(lambda array=array, name=name: broker.put(array, name, replace=True), 1)  # type: ignore[misc]
                del array
                if turn >= 3:
                    found[name].append(took)
    assert born.missed == {} and born.arrays >= 3 + rounds, born
    emit(row, **{name: statistics.median(times) for name, times in found.items()})
    for name in found:
        broker.withdraw(name)


def training_step() -> Callable[[], Any]:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    convolutions = [torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3)]
    model = torch.nn.Sequential(*convolutions, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, classes = torch.rand(8, 3, 128, 128), torch.arange(8)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), classes).backward()
        optimizer.step()

    return step


def bench_frameworks(broker: arraybridge.Broker, rounds: int) -> None:
    for module, framework, make in (("torch", "torch", of_torch), ("jax", "jax", of_jax), ("cv2", "numpy", of_cv2)):
        if importlib.util.find_spec(module):
            bench_put_of(broker, rounds, f"born_put_{module}", framework, make())
    if importlib.util.find_spec("torch"):
        value, floor = in_turn(broker, rounds, 2, training_step(), "torch")
        emit("born_step_torch", value=value / 1000, floor=floor / 1000)


def pipeline() -> Callable[[], Any]:
    generator = np.random.default_rng(0)
    frames = [generator.integers(0, 255, (1080, 1920, 3), dtype="u1") for _ in range(2)]
    if importlib.util.find_spec("cv2"):
        import cv2

        cv2.setNumThreads(1)

        def step() -> None:
            for frame in frames:
                small = cv2.GaussianBlur(cv2.resize(frame, (960, 540)), (5, 5), 1)
                (cv2.cvtColor(small, cv2.COLOR_BGR2GRAY).astype("f4") / 255).copy()
    else:

        def step() -> None:
            for frame in frames:
                values = frame.astype("f4") / 255.0
                values = values - values.mean((0, 1))
                grey = values[..., 0] * 0.3 + values[..., 1] * 0.59 + values[..., 2] * 0.11
                np.concatenate([grey, grey])

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="")
    parser.add_argument("--rounds", type=int, default=9)
    wish = parser.parse_args()
    with arraybridge.Broker(wish.address or None, namespace="bench") as broker:
        bench_put(broker, wish.rounds)
        value, floor = in_turn(broker, wish.rounds, 20_000, lambda: np.empty(8))
        emit("born_small", value=value * 1000, floor=floor * 1000)
        value, floor = in_turn(broker, wish.rounds, 2, pipeline())
        emit("born_step", value=value / 1000, floor=floor / 1000)
        bench_frameworks(broker, wish.rounds)


if __name__ == "__main__":
    main()
