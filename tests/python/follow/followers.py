# SPDX-License-Identifier: Apache-2.0
"""Models whose weights tell their generation, and followers of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from harness import eventually

from arraybridge import Broker
from arraybridge.integrations.torch import Follower, attach, publish

WIDTH, LAYERS = 64, 6
ONES = torch.ones(2, WIDTH)


def network(width: int = WIDTH, layers: int = LAYERS) -> Any:
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers))).eval()


def numbered(version: int, width: int = WIDTH, layers: int = LAYERS) -> Any:
    """A network that multiplies by `version` in each layer: its answer to ONES is version ** layers, and another one if some layers
    are of another version."""
    net = network(width, layers).requires_grad_(False)
    for layer in net:
        layer.weight.fill_(version / width)
        layer.bias.zero_()
    return net


def random(seed: int) -> Any:
    torch.manual_seed(seed)
    return network()


def on_meta(make: Callable[[], Any] = network) -> Any:
    with torch.device("meta"):
        return make().eval()


def published(broker: Broker, net: Any, name: str = "net", **wishes: Any) -> Any:
    return publish(net, name, broker=broker, replace=True, **wishes)


@contextlib.contextmanager
def following(model: Any, broker: Broker, name: str = "net", follow: Any = True) -> Iterator[Follower]:
    follower = attach(model, broker.open(name), follow=follow)
    try:
        yield follower
    finally:
        follower.close()


def prepared(follower: Follower) -> None:
    """Returns when a generation waits for a swap."""
    eventually("a generation is prepared", lambda: follower.stats().ready, follower.stats)


def addresses(model: Any) -> dict[str, int]:
    return {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
