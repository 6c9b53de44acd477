# SPDX-License-Identifier: Apache-2.0
"""What share_program.py does with modules of real PyTorch that follow a bundle on a simulated GPU."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from counted import refused
from real_packages import calls, current, package

import arraybridge
from arraybridge.integrations.torch import attach, publish

LARGE = 2048  # a weight of 16 MiB, for which a bundle gets an arena of its own


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    def module_of(width: int, device: str = "meta") -> Any:
        torch = package("torch").torch
        with torch.device(device):
            return torch.nn.Linear(width, LARGE, bias=False)

    def published(name: str, width: int, value: float) -> arraybridge.Share:
        torch = package("torch").torch
        module = module_of(width, "cpu")
        torch.nn.init.constant_(module.weight, value)
        return publish(module, name, broker=broker, replace=True, device="cuda:0")

    def withdrawn(name: str) -> str:
        """Other tests of the machine need the memory."""
        broker.withdraw(name)
        return "right"

    def prepared(follower: Any) -> None:
        until = time.monotonic() + 30
        while not follower.stats().ready:
            assert time.monotonic() < until, follower.stats()
            time.sleep(0.01)

    def values(module: Any) -> set[float]:
        return set(module.weight.cpu().numpy().ravel().tolist())

    def follow_swaps() -> str:
        """The same tensors at the same addresses, the bytes of each generation, and other arrays of it unchanged."""
        first = published("follow-swaps", LARGE, 1)
        module = module_of(LARGE)
        follower = attach(module, broker.open("follow-swaps"), follow=True)
        weight, address = module.weight, module.weight.data_ptr()
        held = broker.open("follow-swaps").torch()["weight"]
        assert values(module) == {1.0} and weight.is_cuda and held.data_ptr() != address
        before = current()
        for version in range(2, 8):
            share = published("follow-swaps", LARGE, version)
            prepared(follower)
            assert values(module) == {float(version - 1)}, "nothing swaps between two calls"
            assert follower.swap() and follower.generation == share.generation > first.generation
            assert module.weight is weight and weight.data_ptr() == address and values(module) == {float(version)}
        assert set(held.cpu().numpy().ravel().tolist()) == {1.0}
        stats = follower.stats()
        assert (stats.swaps, stats.copied, stats.replaced, stats.refused, stats.error) == (6, 0, 0, 0, ""), stats
        follower.close()
        assert values(module) == {7.0} and current() == before
        return withdrawn("follow-swaps")

    def swap_waits_for_queued_work() -> str:
        """A copy of the old weights that is queued reads them, although the swap comes before it has run."""
        torch = package("torch").torch
        published("follow-queued", LARGE, 1)
        module = module_of(LARGE)
        follower = attach(module, broker.open("follow-queued"), follow="by hand")
        published("follow-queued", LARGE, 2)
        prepared(follower)
        target = package("torch").made(np.zeros((LARGE, LARGE), "f4"), 0)
        with torch.cuda.stream(torch.cuda.Stream()):
            target.copy_(module.weight, non_blocking=True)
            done = calls("copies_done"), calls("kernels_done")
            assert follower.swap()
            assert (calls("copies_done"), calls("kernels_done")) != done, "the swap waited"
        assert set(target.cpu().numpy().ravel().tolist()) == {1.0} and values(module) == {2.0}
        follower.close()
        return withdrawn("follow-queued")

    def small_bundles_get_new_tensors() -> str:
        """They lie beside others in an arena, each at another place, where no window can show them."""
        published("follow-small", 8, 1)
        module = module_of(8)
        follower = attach(module, broker.open("follow-small"), follow="by hand")
        for version in (2, 3):
            published("follow-small", 8, version)
            prepared(follower)
            assert follower.swap() and values(module) == {float(version)}
        stats = follower.stats()
        assert (stats.swaps, stats.copied, stats.refused) == (2, 0, 0), stats
        follower.close()
        return withdrawn("follow-small")

    def another_device_gets_new_tensors() -> str:
        torch = package("torch").torch
        published("follow-moves", LARGE, 1)
        module = module_of(LARGE)
        follower = attach(module, broker.open("follow-moves"), follow="by hand")
        host = module_of(LARGE, "cpu")
        torch.nn.init.constant_(host.weight, 2)
        publish(host, "follow-moves", broker=broker, replace=True, device="cpu")
        prepared(follower)
        assert follower.swap() and values(module) == {2.0} and not module.weight.is_cuda
        published("follow-moves", LARGE, 3)
        prepared(follower)
        assert follower.swap() and values(module) == {3.0} and module.weight.is_cuda
        assert follower.stats().replaced == 2
        follower.close()
        return withdrawn("follow-moves")

    def memory_comes_back() -> str:
        """Forty generations: the broker has memory for a few of them at a time."""
        published("follow-bounded", LARGE, 0)
        module = module_of(LARGE)
        follower = attach(module, broker.open("follow-bounded"), follow="by hand")
        for version in range(1, 41):
            published("follow-bounded", LARGE, version)
            prepared(follower)
            assert follower.swap()
        assert values(module) == {40.0}
        assert broker.stats()["client_arena_bytes"] < 20 * LARGE * LARGE * 4, "of forty that were written"
        follower.close()
        return withdrawn("follow-bounded")

    def handles_of_another_kind_are_refused() -> str:
        published("follow-ipc", LARGE, 1)
        refused(
            lambda: attach(module_of(LARGE), broker.open("follow-ipc"), follow=True),
            arraybridge.InvalidRequest,
            "cudaIpcMemHandle",
            "follow=",
        )
        return withdrawn("follow-ipc")

    def a_dropped_follower_lets_go() -> str:
        published("follow-dropped", LARGE, 1)
        module = module_of(LARGE)
        follower = attach(module, broker.open("follow-dropped"), follow=True)
        weight = module.weight.detach()
        del module, follower
        assert set(weight.cpu().numpy().ravel().tolist()) == {1.0}, "a tensor keeps the window"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            del weight
        return withdrawn("follow-dropped")

    return {
        each.__name__: each
        for each in (
            follow_swaps, swap_waits_for_queued_work, small_bundles_get_new_tensors, another_device_gets_new_tensors,
            memory_comes_back, handles_of_another_kind_are_refused, a_dropped_follower_lets_go,
        )
    }  # fmt: skip
