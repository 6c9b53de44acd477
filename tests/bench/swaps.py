# SPDX-License-Identifier: Apache-2.0
"""The rows of models that follow a bundle: how long their calls pause for the next generation.

swap_1gib: 256 tensors of 4 MiB; swap_20000: 20,000 tensors of 13 KiB. The value is the pause of a swap, with everything
prepared beside; the floor is what a server did without it: attach of the next generation, which makes new tensors; the peer
is load_state_dict, which copies the new weights into the tensors. All weights are compared after each swap.

    tests/bench/swaps.py [full]         prints the rows as JSON
    tests/bench/swaps.py load [SWAPS]   makes so many swaps, by default 10,000, below passes of four threads
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORK = {
    "swap_1gib": "the pause of a model of 1 GiB for the next generation",
    "swap_20000": "the same, 20,000 tensors",
}
REACH = "<= 1 ms"
PEER = "load_state_dict, which copies"


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    environment = {**os.environ, "ARRAYBRIDGE_DAEMON": str(build / "daemon/arraybridged")}
    done = subprocess.run([sys.executable, __file__, *(["full"] if full else [])], env=environment, stdout=subprocess.PIPE, check=True)
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made


def shapes(row: str, full: bool) -> dict[str, tuple[int, ...]]:
    if row == "swap_1gib":
        return {f"w{i}": (1024, 1024) for i in range(256 if full else 16)}
    return {f"w{i}": (3328,) for i in range(20_000 if full else 2_000)}


def module(of: dict[str, tuple[int, ...]], device: str) -> Any:
    import torch

    made = torch.nn.Module()
    for name, shape in of.items():
        made.register_parameter(name, torch.nn.Parameter(torch.empty(shape, device=device), requires_grad=False))
    return made


def publish(broker: Any, of: dict[str, tuple[int, ...]], version: int) -> Any:
    """All numbers of a tensor are its version and its place."""
    from arraybridge import BundleSpec

    writer = broker.bundle("model", {name: BundleSpec(shape, "float32") for name, shape in of.items()}, replace=True)
    for place, name in enumerate(of):
        writer[name][...] = version * len(of) + place
    return writer.publish()


def check(model: Any, version: int) -> None:
    tensors = dict(model.named_parameters())
    for place, tensor in enumerate(tensors.values()):
        expected = version * len(tensors) + place
        assert tensor.view(-1)[0] == expected and tensor.view(-1)[-1] == expected and (place % 16 or (tensor == expected).all())


def until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.001)


def pauses_us(broker: Any, of: dict[str, tuple[int, ...]], turns: int) -> tuple[list[float], list[float], list[float]]:
    """Microseconds of swaps, of attach, and of load_state_dict, in turns."""
    from arraybridge.integrations.torch import attach

    publish(broker, of, 0)
    followed, attached, copied = module(of, "meta"), module(of, "meta"), module(of, "cpu")
    follower = attach(followed, broker.open("model"), follow="by hand")
    swaps, attaches, copies = [], [], []
    for version in range(1, turns + 1):
        publish(broker, of, version)
        until(lambda: follower.stats().ready)
        assert follower.swap()
        swaps.append(follower.stats().pause_us)
        check(followed, version)
        bundle = broker.open("model")
        begun = time.perf_counter()
        attach(attached, bundle, access="shared")
        attaches.append((time.perf_counter() - begun) * 1e6)
        check(attached, version)
        weights = bundle.state_dict(access="shared")
        begun = time.perf_counter()
        copied.load_state_dict(weights)
        copies.append((time.perf_counter() - begun) * 1e6)
        check(copied, version)
        attached = module(of, "meta")
        del bundle, weights
    follower.close()
    return swaps, attaches, copies


def measure(full: bool) -> list[dict[str, Any]]:
    from arraybridge import Broker

    found = []
    for row, work in WORK.items():
        with Broker(start="private", timeout_s=60) as broker:
            medians = [statistics.median(each) for each in pauses_us(broker, shapes(row, full), 9 if full else 3)]
        value, floor, peer = (round(each, 1) for each in medians)
        if not full:
            work += "; with --quick a sixteenth" if row == "swap_1gib" else "; with --quick 2,000"
        found.append(
            {"id": row, "work": work, "value": value, "unit": "us", "floor": floor, "ratio": round(value / floor, 6), "reach": REACH,
             "peer": PEER, "peer_value": peer}
        )  # fmt: skip
    return found


def load(swaps: int) -> dict[str, Any]:
    """Passes of four threads, each of which answers with its version ** layers if it is whole."""
    import torch

    from arraybridge import Broker
    from arraybridge.integrations.follow import follower as followers
    from arraybridge.integrations.torch import attach, publish

    setattr(followers, "_PATIENCE_S", 0.0)  # calls overlap all the time, and each swap is to be made at once
    torch.set_num_threads(1)
    width, layers, ones = 64, 6, torch.ones(2, 64)
    nets = [torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).requires_grad_(False) for _ in range(3)]
    for version, net in ((2, nets[0]), (3, nets[1])):
        for layer in net:
            layer.weight.fill_(version / width)
            layer.bias.zero_()
    whole = {2.0**layers, 3.0**layers}
    over, torn, passes = threading.Event(), list[Any](), [0] * 4

    def serve(number: int) -> None:
        with torch.no_grad():
            while not over.is_set():
                answer = set(model(ones).unique().tolist())
                if len(answer) != 1 or not answer <= whole:
                    torn.append(answer)
                passes[number] += 1

    with Broker(start="private", timeout_s=60) as broker:
        publish(nets[0], "net", broker=broker)
        model = nets[2]
        follower = attach(model, broker.open("net"), follow=True)
        servers = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
        begun = time.monotonic()
        for server in servers:
            server.start()
        published = 0
        while follower.stats().swaps < swaps:
            published += 1
            newest = publish(nets[published % 2], "net", broker=broker, replace=True).generation
            until(lambda newest=newest: follower.generation == newest)
        over.set()
        for server in servers:
            server.join()
        stats = follower.stats()._asdict()
        follower.close()
    return {**stats, "published": published, "passes": sum(passes), "torn": len(torn), "seconds": round(time.monotonic() - begun, 1)}


if __name__ == "__main__":
    words = sys.argv[1:]
    answer = load(int(words[1]) if len(words) > 1 else 10_000) if words[:1] == ["load"] else measure("full" in words)
    print(json.dumps(answer, indent=2))
    sys.exit(1 if isinstance(answer, dict) and answer["torn"] else 0)
