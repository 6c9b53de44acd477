# SPDX-License-Identifier: Apache-2.0
"""What share_program.py does with an array of any package that runs here: puts it, gets it, and copies it."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from real_packages import calls, current, package
from shares import view_of

import arraybridge

COUNT = 1000
XLA = {"jax", "tensorflow"}


def expected(start: str) -> np.ndarray:
    return np.arange(float(start), float(start) + COUNT, dtype="f4")


def right(values: np.ndarray, start: str) -> str:
    return "right" if (values == expected(start)).all() else f"wrong: {values[:3].tolist()}"


def with_the_same_gpu(command: Callable[..., str]) -> Callable[..., str]:
    """The command, after which the GPU is current that was before. XLA's own functions leave that of their last work
    current, and CuPy would not notice.
    """

    @functools.wraps(command)
    def restoring(*words: str) -> str:
        before = max(current(), 0)
        try:
            return command(*words)
        finally:
            if XLA.intersection(words):
                package("torch").torch.cuda.set_device(before)

    return restoring


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    kept: list[Any] = []

    def cell_put(of: str, name: str, start: str, gpu: str = "0") -> str:
        array = package(of).write(package(of).made(expected(start) - 1, int(gpu)))
        before = current()
        share = broker.put(array, name)
        assert of in XLA or current() == before
        return f"{share.device} {share.kind}"

    def cell_put_pending(of: str, name: str, start: str, gpu: str) -> str:
        """The put of an array that a queued kernel writes."""
        array, current_stream = package(of).pending(expected(start), int(gpu))
        with current_stream:
            share = broker.put(array, name)
        return f"{share.device} {share.kind}"

    def got(of: str, name: str, wishes: dict[str, Any]) -> tuple[Any, str]:
        own, before = package(of), current()
        array, via = own.got(broker, name, **wishes)
        assert of in XLA or current() == before
        kept.append(array)
        return array, via

    def cell_get(of: str, name: str, start: str) -> str:
        """The package's array: its GPU, whether it has the share's memory, and its values."""
        array, via = got(of, name, {})
        own = package(of)
        shared = own.address(array) == view_of(broker, name).address
        return f"cuda:{own.gpu(array)} {'shared' if shared else 'apart'} {via} {right(own.values(array), start)}"

    def cell_get_on(of: str, name: str, start: str, device: str) -> str:
        array, via = got(of, name, {"device": device})
        own = package(of)
        return f"cuda:{own.gpu(array)} {via} {right(own.values(array), start)}"

    def cell_shared_on(of: str, name: str, device: str) -> str:
        return got(of, name, {"device": device, "require": "zero-copy"})[1]

    def cell_convert(of: str, target: str, start: str) -> str:
        """A conversion to another package, whose stream waits for no other, of an array that queued work still writes."""
        own = package(target)
        array, current_stream = package(of).pending(expected(start))
        done = calls("kernels_done"), calls("copies_done")
        with current_stream, own.side():
            got = broker.convert(array, target, copy=False)
            pending = (calls("kernels_done"), calls("copies_done")) == done
            assert own.address(got) == package(of).address(array)
            return f"{'pending' if pending else 'waited'} {right(own.values(got), start)}"

    def cell_own(of: str, name: str, start: str) -> str:
        """A copy may be written, and the share stays as it is."""
        own = package(of)
        array, via = got(of, name, {"copy": True})
        own.write(array)
        share, _ = own.got(broker, name)
        return f"{via} {right(own.values(array) - 1, start)} {right(own.values(share), start)}"

    def cell_write(of: str, name: str) -> str:
        package(of).write(got(of, name, {})[0])
        return "written"

    return {
        each.__name__: with_the_same_gpu(each)
        for each in (cell_put, cell_put_pending, cell_get, cell_get_on, cell_shared_on, cell_convert, cell_own, cell_write)
    }
