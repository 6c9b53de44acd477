# SPDX-License-Identifier: Apache-2.0
"""Ray with arrays in the brokers, beside plain Ray in the same run: a hop between two actors, and the next read of the array.

    tests/bench/clusters_ray.py same [MIB...]       two actors of one node
    tests/bench/clusters_ray.py hosts [MIB...]      of two hosts: network namespaces joined by a bridge; needs root
    tests/bench/clusters_ray.py nodes [MIB...]      of two raylets of this host, by its loopback

with the interpreter of build/environments/clusters (`tests/run --only clusters` makes it). Prints a line of JSON for each
row. A hop: the producer returns its array, or a share of it; the consumer reads a byte of each page; the driver has the
answer. Ways of one group (GROUPS) take turns; milliseconds, median (least to most).
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/clusters"), str(ROOT / "tests/python")]
os.environ.setdefault("ARRAYBRIDGE_DAEMON", str(ROOT / "build/release/daemon/arraybridged"))

import numpy as np
import ray
from hosts import hosts
from processes import start_daemon, stop_daemon
from ray_cluster import head_options, ray_start

import arraybridge
import arraybridge.integrations.ray as abr

WARM_UPS, ROUNDS = 2, 7
STORE = 4 << 30
ROOM = 6 << 30
PORT = 6391


class Way(NamedTuple):
    name: str
    framework: str
    shared: bool  # by the brokers
    options: dict[str, Any] = {}  # of the actors
    access: str = "safe"
    transport: str = ""  # of Ray Direct Transport


WAYS = (
    Way("plain numpy", "numpy", False),
    Way("arraybridge numpy", "numpy", True),
    Way("plain torch", "torch", False),
    Way("torch with RAY_ENABLE_ZERO_COPY_TORCH_TENSORS", "torch", False, {"runtime_env": {"env_vars": {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}}}),
    Way("arraybridge torch", "torch", True),
    Way("arraybridge torch, access=shared", "torch", True, {}, "shared"),
    Way("Ray Direct Transport by NIXL, torch", "torch", False, {}, "safe", "nixl"),
    Way("Ray Direct Transport by arraybridge, torch", "torch", False, {}, "safe", "arraybridge"),
    Way("plain jax", "jax", False),
    Way("arraybridge jax", "jax", True),
)  # fmt: skip
# Ours, beside: the rows of an issue's list, and how much of the other's median each may take; same node, 64 and 512 MiB.
ROWS = (
    ("ray_torch", "arraybridge torch", "plain torch"),
    ("ray_torch_shared_again", "arraybridge torch, access=shared", "torch with RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"),
    ("ray_rdt", "Ray Direct Transport by arraybridge, torch", "Ray Direct Transport by NIXL, torch"),
    ("ray_jax", "arraybridge jax", "plain jax"),
    ("ray_numpy", "arraybridge numpy", "plain numpy"),
)
# Measured one after the other: all actors together would fill the memory of a small machine. The ways of a group take
# turns; not the two transports, because NIXL's actors keep a CPU busy while they wait.
GROUPS = (
    [way.name for way in WAYS if way.framework == "numpy"],
    [way.name for way in WAYS if way.framework == "torch" and not way.transport],
    *([way.name] for way in WAYS if way.transport),
    [way.name for way in WAYS if way.framework == "jax"],
)


abr.register()  # before a class names the transport
HOOK = {"worker_process_setup_hook": "arraybridge.integrations.ray.register"}


@ray.remote(num_cpus=0, enable_tensor_transport=True)
class Stage:
    """Makes arrays, or reads them."""

    def __init__(self, way: Way, mebibytes: int) -> None:
        self.way = way
        array = np.full(mebibytes << 18, 1, "f4")
        if way.framework == "torch":
            import torch

            self.array: Any = torch.from_numpy(array)
        elif way.framework == "jax":
            import jax

            self.array = jax.numpy.asarray(array)
        else:
            self.array = array

    def ready(self) -> None:
        if self.way.shared:
            abr.put(np.ones(1)).get()

    @ray.method(tensor_transport="nixl")
    def make_nixl(self) -> Any:
        return self.array

    @ray.method(tensor_transport="arraybridge")
    def make_arraybridge(self) -> Any:
        return self.array

    def make(self) -> Any:
        return abr.put(self.array) if self.way.shared else self.array

    def read(self, array: Any) -> float:
        if self.way.shared:
            wishes = {"access": self.way.access} if self.way.access != "safe" else {}
            array = array.get(self.way.framework, **wishes)
        return float(np.asarray(array)[::1024].sum())


def measured(way: Way, mebibytes: int, there: str) -> Iterator[tuple[float, float]]:
    """Milliseconds of a hop, and of the next read, for ever."""
    options = {"runtime_env": HOOK} if way.transport else way.options
    producer = Stage.options(resources={"a": 0.01}, **options).remote(way, mebibytes)
    consumer, second = (Stage.options(resources={there: 0.01}, **options).remote(way, 0) for _ in range(2))
    make = getattr(producer, f"make_{way.transport}") if way.transport else producer.make
    ray.get([each.ready.remote() for each in (producer, consumer, second)])
    wanted = float(mebibytes << 8)
    try:
        while True:
            begun = time.perf_counter()
            made = make.remote()
            assert ray.get(consumer.read.remote(made)) == wanted
            hop = time.perf_counter()
            assert ray.get(second.read.remote(made)) == wanted
            yield (hop - begun) * 1e3, (time.perf_counter() - hop) * 1e3
            del made
    finally:
        for each in (producer, consumer, second):  # at once: NIXL's still poll when Ray has been told that they may end
            ray.kill(each)


def compared(sizes: list[int], there: str, brokers: list[Any]) -> None:
    for mebibytes in sizes:
        hops: dict[str, float] = {}
        again: dict[str, float] = {}
        for group in GROUPS:
            for took, taken in zip((hops, again), medians([way for way in WAYS if way.name in group], mebibytes, there), strict=True):
                took.update(taken)
            for _ in range(300):
                left = [(broker.stats()["shares"], broker.stats()["leases"]) for broker in brokers]
                if left == [(0, 0)] * len(brokers):
                    break
                time.sleep(0.1)
        for row, ours, other in ROWS:
            of = again if row.endswith("again") else hops
            print(
                json.dumps(
                    {"row": row, "mib": mebibytes, "ratio": round(of[ours] / of[other], 3), "ms": round(of[ours], 1), "beside": other}
                ),
                flush=True,
            )
        print(json.dumps({"row": "ray_left", "mib": mebibytes, "shares_and_leases": left}), flush=True)


def medians(ways: list[Way], mebibytes: int, there: str) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds of a hop and of the next read, by the names of the ways; prints them."""
    runs = {way.name: measured(way, mebibytes, there) for way in ways}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for number in range(WARM_UPS + ROUNDS):
        for name, run in runs.items():
            took = next(run)
            if number >= WARM_UPS:
                taken[name].append(took)
            time.sleep(0.2)  # what the hop before left is collected
    hops = {name: statistics.median(hop for hop, _ in each) for name, each in taken.items()}
    again = {name: statistics.median(next_ for _, next_ in each) for name, each in taken.items()}
    for name, each in taken.items():
        spread = [round(extreme, 1) for extreme in (min(each)[0], max(each)[0])]
        print(
            json.dumps(
                {"way": name, "mib": mebibytes, "hop_ms": round(hops[name], 1), "spread_ms": spread, "again_ms": round(again[name], 1)}
            ),
            flush=True,
        )
    return hops, again


@contextlib.contextmanager
def cluster(directories: list[str], how: str) -> Iterator[tuple[str, list[str]]]:
    """A cluster of one node for each of these brokers; its address, and the prefix of commands that run on its first node."""
    with contextlib.ExitStack() as stack:
        made: list[Any] = stack.enter_context(hosts(len(directories))) if how == "hosts" else [None] * len(directories)
        sessions = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp"))
        head = f"{made[0].address if made[0] else '127.0.0.1'}:{PORT}"
        for number, (directory, host) in enumerate(zip(directories, made, strict=True)):
            where = head_options(PORT, sessions) if number == 0 else ["--address", head]
            words = ray_start(where, host.address if host else "127.0.0.1", "ab"[number], cpus=8, store=STORE)
            environment = {**os.environ, "ARRAYBRIDGE_ADDRESS": directory}
            if host:
                environment["UCX_TLS"] = "tcp"  # else NIXL reads the other process's memory, which hosts cannot do
            started = host.start(words, env=environment) if host else subprocess.Popen(words, env=environment)
            assert started.wait() == 0
        try:
            yield head, made[0].prefix if made[0] else []
        finally:
            subprocess.run([str(Path(sys.executable).parent / "ray"), "stop", "--force"], check=False, stdout=subprocess.DEVNULL)


def main() -> None:
    how, *words = sys.argv[1:]
    sizes = [int(word) for word in words if word.isdecimal()] or [64, 512]
    if "--inside" in words:
        at = words.index("--inside")
        inside(how, sizes, words[at + 1], words[at + 2 :])
        return
    with tempfile.TemporaryDirectory(prefix="ab-") as temp, contextlib.ExitStack() as stack:
        directories = [f"{temp}/{name}" for name in ("a" if how == "same" else "ab")]
        for directory in directories:
            Path(directory).mkdir()
            daemon = start_daemon(directory, "--log-level", "error", "--host-capacity", str(ROOM), "--orphan-grace", "2s")
            stack.callback(stop_daemon, daemon)
        head, prefix = stack.enter_context(cluster(directories, how))
        words = [sys.executable, __file__, how, *map(str, sizes), "--inside", head, *directories]
        subprocess.run([*prefix, *words], env={**os.environ, "ARRAYBRIDGE_ADDRESS": directories[0]}, check=True)


def inside(how: str, sizes: list[int], head: str, directories: list[str]) -> None:
    ray.init(address=head, log_to_driver=False)
    abr.start()
    brokers = [arraybridge.Broker(directory, start="never") for directory in directories]
    compared(sizes, "a" if how == "same" else "b", brokers)
    abr.stop()


if __name__ == "__main__":
    main()
