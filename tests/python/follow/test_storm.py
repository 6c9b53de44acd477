# SPDX-License-Identifier: Apache-2.0
"""Many swaps beside threads that serve: no call has weights of two generations. ARRAYBRIDGE_LONG: 10,000 swaps."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from harness import eventually

from arraybridge import Broker

torch = pytest.importorskip("torch", reason="torch is not installed")

from followers import ONES, following, on_meta, prepared, published, random

SWAPS = 10_000 if os.environ.get("ARRAYBRIDGE_LONG") else 200
SEEDS = 4
FORMS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda net: net,
    "compiled": lambda net: torch.compile(net, backend="aot_eager"),
}


class Server:
    """A thread that calls a form of the model until `end`, and compares each answer, bit by bit, with those that there may be."""

    def __init__(self, form: str, model: Any, nets: list[Any]) -> None:
        self.form, self.seen, self.torn = form, [0] * len(nets), 0
        with torch.no_grad():
            self._call = FORMS[form](model)
            self._answers = [FORMS[form](net)(ONES) for net in nets]
            self._call(ONES)  # compiles
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with torch.no_grad():
            while not self._over.is_set():
                answer = self._call(ONES)
                equal = [torch.equal(answer, each) for each in self._answers]
                self.torn += not any(equal)
                self.seen = [count + is_it for count, is_it in zip(self.seen, equal, strict=True)]

    def end(self) -> None:
        self._over.set()
        self._thread.join()


def test_no_call_is_torn(broker: Broker) -> None:
    torch._dynamo.reset()
    nets = [random(seed).requires_grad_(False) for seed in range(SEEDS)]
    published(broker, nets[0])
    model = on_meta()
    with following(model, broker) as follower:
        servers = [Server(form, model, nets) for form in FORMS]
        try:
            for turn in range(1, SWAPS + 1):
                share = published(broker, nets[turn % SEEDS])
                eventually("a call swaps", lambda: follower.generation == share.generation, follower.stats)
        finally:
            for server in servers:
                server.end()
        stats = follower.stats()
        assert (stats.swaps, stats.skipped, stats.error) == (SWAPS, 0, "")
        for server in servers:
            assert server.torn == 0 and min(server.seen) > 0, (server.form, server.torn, server.seen)
        published(broker, nets[1])
        prepared(follower)
        assert torch.equal(model(ONES), nets[1](ONES))
    torch._dynamo.reset()
