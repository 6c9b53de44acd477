# SPDX-License-Identifier: Apache-2.0
"""What share_program.py does with real JAX, whose kernels the simulated driver interprets."""

import asyncio
import ctypes
import os
import re
import signal
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax._src.hardware_utils
import numpy as np
import torch

import arraybridge

jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True  # it looks for files in /dev
COUNT = 1000
driver = ctypes.CDLL("libcuda.so.1")
GPU = jax.devices("cuda")[0]
# XLA makes one kernel or more of each; `m` is jax.numpy here, and NumPy to compare with.
KERNELS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda m, x: x + 1,
    "fused": lambda m, x: m.where(x > 1, x * x - 2 * x, -x) / 3,
    "half": lambda m, x: x.astype("float16") + m.float16(1),
    "integer": lambda m, x: (x * 100).astype("int32") // 7 % 5,
    "bits": lambda m, x: (x * 100).astype("uint8") << 1 ^ 3,
    "complex": lambda m, x: x.astype("complex64") * 1j,
    "rounded": lambda m, x: m.floor(x * 10) + m.abs(m.round(-x)),
    "transposed": lambda m, x: x.T[::2],
    "joined": lambda m, x: m.concatenate([x, x[:, ::-1]]),
    "taken": lambda m, x: x[m.asarray([3, 1, 2])],
    "sum": lambda m, x: x.sum(),
    "rows": lambda m, x: x.sum(axis=1),
    "columns": lambda m, x: x.max(axis=0),
    "where": lambda m, x: x.argmin(axis=1),
    "running": lambda m, x: x.cumsum(axis=0),
    "any": lambda m, x: (x > 1.9).any(axis=1),
}


def expected(start: str) -> np.ndarray:
    return np.arange(int(start), int(start) + COUNT, dtype="f4")


def on_gpu(start: str) -> jax.Array:
    return jax.device_put(expected(start), GPU).block_until_ready()


def next_one(array: jax.Array) -> jax.Array:
    return array + 1


later = jax.jit(next_one)
in_place = jax.jit(next_one, donate_argnums=0)


def pending(start: str, milliseconds: int = 500) -> jax.Array:
    """An array whose kernel runs after that time, or when a call of the driver waits for it."""
    one = on_gpu(str(int(start) - 1))
    later(one).block_until_ready()  # compiled
    driver.simulated_cuda_pause(milliseconds)
    array = later(one)
    assert not array.is_ready()
    return array


def right(array: Any, start: str) -> str:
    values = np.asarray(array)
    return "right" if (values == expected(start)).all() else f"wrong: {values.ravel()[:3].tolist()}"


def said(call: Callable[[Any], object], array: jax.Array) -> str:
    """The essential words of the error of a donation or of a donated array, or "done"."""
    try:
        call(array)
    except Exception as error:
        (words,) = re.findall("buffer with external reference|deleted or donated array", str(error))
        return f"{type(error).__name__}: {words}"
    return "done"


def jax_compute() -> str:
    """Kernels of XLA: the results are those of NumPy."""
    host = np.linspace(0.1, 2, 600, dtype="f4").reshape(20, 30)
    array = jax.device_put(host, GPU)
    for name, of in KERNELS.items():
        there, here = np.asarray(jax.jit(lambda x, of=of: of(jax.numpy, x))(array)), of(np, host)
        np.testing.assert_allclose(there, here, rtol=2e-3 if here.dtype == np.float16 else 1e-5, err_msg=name)
    return "right"


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    kept: list[object] = []

    def view(name: str) -> Any:
        return broker.views(broker.list(name)[0].share)[0]

    def jax_put(name: str, start: str) -> str:
        share = broker.put(on_gpu(start), name)
        return f"{share.device} {share.kind}"

    def jax_get(name: str, start: str) -> str:
        array, plan = broker.get(name, "jax", explain=True)
        assert array.devices() == {GPU}
        assert array.unsafe_buffer_pointer() == view(name).address
        kept.append(array)
        return f"{plan.via} {plan.copies} {right(array, start)}"

    def jax_put_pending(name: str, start: str, verb: str) -> str:
        array = pending(start)
        if verb == "put":
            broker.put(array, name)
        elif verb == "unwaited":
            broker.put(array, name, wait=False)
        elif verb == "send":
            broker.channel(name).send(array)
        else:
            asyncio.run(broker.channel(name).asend(array))
        broker.flush()
        return "ok"

    def jax_received(name: str, start: str) -> str:
        return right(broker.channel(name).receive("jax", timeout=60), start)

    def jax_convert(start: str) -> str:
        """From the host and back, and to a copy that shares nothing; test_matrix.py has all pairs."""
        to_gpu, plan = broker.convert(expected(start), "jax", device="cuda:0", explain=True)
        told = [f"{plan.via} {right(to_gpu, start)} {to_gpu.devices() == {GPU}}"]
        to_host, plan = broker.convert(to_gpu, "numpy", explain=True)
        told.append(f"{plan.via} {right(to_host, start)}")
        private, plan = broker.convert(to_gpu, "jax", copy=True, explain=True)
        assert private.unsafe_buffer_pointer() != to_gpu.unsafe_buffer_pointer()
        return ", ".join([*told, f"{plan.via} {right(private, start)}"])

    def jax_convert_pending(start: str) -> str:
        """The consumer's work comes after the kernel that writes the array, and PyTorch's, which has a stream, on the GPU."""
        told = []
        for target in ("torch", "numba", "numpy"):
            array = pending(start)
            converted = broker.convert(array, target)
            assert target != "torch" or not array.is_ready(), "the host has waited"
            values = {"torch": lambda: converted.cpu(), "numba": lambda: converted.copy_to_host(), "numpy": lambda: converted}[target]()
            torch.cuda.synchronize()  # Numba copies later
            told.append(right(values, start))
        return " ".join(told)

    def jax_own(name: str, start: str) -> str:
        """JAX may compute into a copy's memory; the share stays as it is."""
        own, plan = broker.get(name, "jax", copy=True, explain=True)
        assert own.unsafe_buffer_pointer() != view(name).address
        return f"{plan.via} {right(in_place(own), str(int(start) + 1))} {right(broker.get(name, 'jax'), start)}"

    def jax_donate(name: str, start: str) -> str:
        """JAX computes into the memory of an array that is donated, but not while another framework reads it."""
        array = on_gpu(start)
        broker.put(array, name)
        tensor = broker.convert(array, "torch")
        told = [said(in_place, array), right(tensor.cpu(), start)]
        array = on_gpu(start)
        in_place(array)
        return ", ".join([*told, right(broker.get(name, "jax"), start), said(broker.put, array)])

    def jax_donate_share(name: str) -> str:
        """JAX writes into memory that is mapped for reading."""
        in_place(broker.get(name, "jax")).block_until_ready()
        return "alive"

    def jax_die(name: str, start: str, when: str) -> str:
        """Dies before the kernel of an array has run that it puts, or just after the put."""
        array = pending(start, 60_000 if when == "before" else 500)
        if when == "before":
            threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGKILL]).start()
        broker.put(array, name, wait=False)
        os.kill(os.getpid(), signal.SIGKILL)
        return "alive"

    return {
        each.__name__: each
        for each in (
            jax_compute, jax_put, jax_get, jax_put_pending, jax_received, jax_convert, jax_convert_pending, jax_own, jax_donate,
            jax_donate_share, jax_die,
        )
    }  # fmt: skip
