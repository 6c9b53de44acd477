# SPDX-License-Identifier: Apache-2.0
"""A Ray program with stages of NumPy, torch and JAX on two nodes, whose arrays lie in the brokers.

    python docs/examples/ray/ray_stages.py            # two nodes, made here, each with a broker of its own
    python docs/examples/ray/ray_stages.py --address auto --frames 100    # a cluster that is there

needs `pip install ray==2.60.0 torch jax`. A camera (NumPy) writes frames in broker memory; two actors of torch on another
node, and a task of JAX there, read each: the bytes go to that node once. Exits with 0 only if every sum is right and
nothing is left in the brokers that were made here.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # of the cluster that is made here
import numpy as np
import ray

import arraybridge
import arraybridge.integrations.ray as abr

SHAPE = (1080, 1920, 3)


@ray.remote(num_cpus=0)
class Camera:
    """NumPy: frames are born in broker memory."""

    def frame(self, number: int) -> Any:
        frame = abr.empty(SHAPE, "uint8")
        frame[...] = number % 256
        return abr.put(frame)


@ray.remote(num_cpus=0)
class Network:
    """torch: maps a frame, and publishes its result, which the next stages map."""

    def run(self, frame: Any) -> Any:
        pixels = frame.get("torch", access="shared")
        return abr.put(pixels.float().mean(dim=(0, 1)))


@ray.remote
def brightness(frame: Any, means: Any) -> float:
    """JAX: reads the frame and the result of the stage before."""
    return float(frame.get("jax").max()) + float(means.get("jax").sum())


@contextlib.contextmanager
def two_nodes() -> Iterator[tuple[str, list[arraybridge.Broker]]]:
    """The address of a cluster of two nodes in this process tree, and their brokers."""
    from ray.cluster_utils import Cluster

    brokers = [arraybridge.Broker(start="private") for _ in range(2)]
    cluster = Cluster()
    for broker in reversed(brokers):  # the driver's is the first node
        os.environ["ARRAYBRIDGE_ADDRESS"] = broker.address
        cluster.add_node(num_cpus=2, object_store_memory=200 << 20, include_dashboard=False)
    try:
        yield cluster.address, brokers
    finally:
        ray.shutdown()
        cluster.shutdown()
        for broker in brokers:
            broker.close()


def run(frames: int) -> None:
    here = ray.get_runtime_context().get_node_id()
    others = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
    at = [ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False) for node in (here, *others)]
    camera = Camera.options(scheduling_strategy=at[0]).remote()
    networks = [Network.options(scheduling_strategy=at[-1]).remote() for _ in range(2)]
    answers = []
    for number in range(frames):
        frame = camera.frame.remote(number)
        for network in networks:
            answers.append((number, brightness.options(scheduling_strategy=at[-1]).remote(frame, network.run.remote(frame))))
    for number, answer in answers:
        assert ray.get(answer) == 4 * (number % 256), number
    print(f"{len(answers)} answers of {frames} frames of {np.prod(SHAPE) / 1e6:.1f} MB are right")


def left(broker: arraybridge.Broker) -> int:
    numbers = broker.stats()
    return numbers["shares"] + numbers["leases"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", help="of a Ray cluster whose nodes have arraybridge; default: one of two nodes, made here")
    parser.add_argument("--frames", type=int, default=20)
    wanted = parser.parse_args()
    if wanted.address:
        ray.init(address=wanted.address)
        run(wanted.frames)
        return
    with two_nodes() as (address, brokers):
        ray.init(address=address)
        addresses = abr.start()
        assert sorted(addresses.values()) == sorted(broker.address for broker in brokers)
        run(wanted.frames)
        deadline = time.monotonic() + 90  # Ray counts references at its leisure
        while any(left(broker) for broker in brokers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(left(broker) for broker in brokers), [broker.list() for broker in brokers]
        print("nothing is left in the brokers of the two nodes")
        abr.stop()


if __name__ == "__main__":
    main()
