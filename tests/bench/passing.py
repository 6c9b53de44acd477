# SPDX-License-Identifier: Apache-2.0
"""The rows of arrays that Python's processes hand over, each beside the same program without arraybridge.

pool_map_64mib: ProcessPoolExecutor.map of an array of 64 MiB, with the reducers of arraybridge.multiprocessing; floor:
with pickle's own. dataloader_epoch: an epoch of a DataLoader with 4 workers and batches of 8 MiB, with
arraybridge.data.collate; floor: torch's default_collate. attach_20000: a bundle of 20,000 tensors is opened, and all of
them are made; floor: torch.multiprocessing sends 2,000 to another process, times ten (fewer if descriptors are scarce).
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

WORK = {
    "pool_map_64mib": ("ProcessPoolExecutor.map, 64 MiB to a worker; floor: without the reducers", "ms", "<= 0.1 x"),
    "attach_20000": ("Broker.open and Bundle.torch, 20,000 tensors; floor: torch.multiprocessing", "ms", "<= 0.01 x"),
    "dataloader_epoch": ("DataLoader, 4 workers, a batch of 8 MiB; floor: torch's default collate", "ms", "<= 0.5 x"),
}


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    environment = {**os.environ, "ARRAYBRIDGE_DAEMON": str(build / "daemon/arraybridged")}
    done = subprocess.run([sys.executable, __file__, *(["full"] if full else [])], env=environment, stdout=subprocess.PIPE, check=True)
    made = []
    for row, (value, floor) in json.loads(done.stdout).items():
        work, unit, reach = WORK[row]
        numbers = {"value": round(value, 2), "floor": round(floor, 2), "ratio": round(value / floor, 3)}
        made.append({"id": row, "work": work, "unit": unit, "reach": reach, "peer": None, "peer_value": None, **numbers})
    return made


def first(array: Any) -> int:
    return int(array[0])


def map_ms(rounds: int) -> float:
    import numpy as np

    array, took = np.ones(64 << 20, "u1"), []
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        for _ in range(rounds):
            begun = time.perf_counter()
            assert list(pool.map(first, [array])) == [1]
            took.append((time.perf_counter() - begun) * 1e3)
    return statistics.median(took)


class Images:
    """A torch dataset of 1 MiB samples, which cost nothing to make."""

    def __init__(self, batches: int) -> None:
        import torch

        self.samples, self.image = 8 * batches, torch.ones(256, 256, 4)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        return self.image


def batch_ms(batches: int, collate: Any) -> float:
    import torch

    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(Images(batches), batch_size=8, num_workers=4, collate_fn=collate)  # type: ignore[arg-type]
    begun = time.perf_counter()
    assert sum(int(batch[0, 0, 0, 0]) for batch in loader) == batches
    return (time.perf_counter() - begun) / batches * 1e3


TENSORS = 20_000
SENT_MAX = 2_000  # by torch.multiprocessing, which has a descriptor for each


def weights(count: int) -> dict[str, Any]:
    import torch

    return {f"layers.{i}.weight": torch.full((4, 8), float(i)) for i in range(count)}


def attach_ms(broker: Any, rounds: int) -> float:
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        tensors = broker.open("weights").torch()
        took.append((time.perf_counter() - begun) * 1e3)
        assert len(tensors) == TENSORS
    return statistics.median(took)


def sent_ms() -> float:
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy("file_descriptor")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(SENT_MAX, hard - 256) if hard != resource.RLIM_INFINITY else SENT_MAX
    context = torch.multiprocessing.get_context("fork")
    queue, ready, over = context.SimpleQueue(), context.Event(), context.Event()

    def send() -> None:
        tensors = weights(count)
        ready.set()
        queue.put(tensors)
        over.wait()

    process = context.Process(target=send)
    process.start()
    ready.wait()
    begun = time.perf_counter()
    assert len(queue.get()) == count
    took = (time.perf_counter() - begun) * 1e3
    over.set()
    process.join()
    return took * TENSORS / count


def measure(full: bool) -> dict[str, tuple[float, float]]:
    import arraybridge.data
    import arraybridge.multiprocessing

    warnings.filterwarnings("ignore", message="This DataLoader will create 4 worker processes")
    maps: tuple[list[float], list[float]] = [], []
    epochs: tuple[list[float], list[float]] = [], []
    attaches: tuple[list[float], list[float]] = [], []
    with arraybridge.Broker(start="private") as broker:
        broker.stats()  # connected, so that forked workers go to this broker
        collate = functools.partial(arraybridge.data.collate, broker=broker)
        for _ in range(5 if full else 1):  # in turns: the machine is noisy
            arraybridge.multiprocessing.install(broker)
            maps[0].append(map_ms(9))
            arraybridge.multiprocessing.uninstall()
            maps[1].append(map_ms(5))
            epochs[0].append(batch_ms(200 if full else 40, collate))
            epochs[1].append(batch_ms(200 if full else 40, None))
        broker.bundle("weights", weights(TENSORS)).fill().publish()
        for _ in range(3 if full else 1):
            attaches[0].append(attach_ms(broker, 9))
            attaches[1].append(sent_ms())
    found = {"pool_map_64mib": maps, "attach_20000": attaches, "dataloader_epoch": epochs}
    return {row: (statistics.median(value), statistics.median(floor)) for row, (value, floor) in found.items()}


if __name__ == "__main__":
    print(json.dumps(measure("full" in sys.argv[1:])))
