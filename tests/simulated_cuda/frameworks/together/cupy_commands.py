# SPDX-License-Identifier: Apache-2.0
"""What share_program.py does with real CuPy, whose kernels the simulated driver interprets."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import cupy_runtime
import numpy as np
import torch

import arraybridge

cupy_runtime.load(os.environ["CUPY_RUNTIME_MODULE"])
import cupy

COUNT = 1000
TYPES = ["f2", "f4", "f8", "c8", "i1", "u2", "i8", "?"]


def expected(start: str, dtype: str = "f4") -> np.ndarray:
    return np.arange(int(start), int(start) + COUNT).astype(dtype)


def address(array: Any) -> int:
    if isinstance(array, torch.Tensor):
        return array.data_ptr()
    return int(array.__cuda_array_interface__["data"][0])


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    kept: list[object] = []

    def right(array: Any, start: str) -> str:
        values = cupy.asnumpy(array)
        return "right" if (values == expected(start, values.dtype)).all() else f"wrong: {values.ravel()[:3].tolist()}"

    def compute() -> str:
        """Kernels of CuPy: the results are those of NumPy."""
        host = np.linspace(0.1, 2, 600, dtype="f4").reshape(20, 30)
        array = cupy.asarray(host)
        for of in (
            lambda m, x: x.sum(axis=0), lambda m, x: m.sqrt(x) * m.float32(2), lambda m, x: x.astype("f2") + m.float16(1),
            lambda m, x: x.T[::2].copy(), lambda m, x: m.where(x > 1, x, -x), lambda m, x: x.astype("c8") * 1j,
            lambda m, x: x.max(axis=1), lambda m, x: m.sin(x), lambda m, x: x[x > 1],
        ):  # fmt: skip
            there, here = cupy.asnumpy(of(cupy, array)), of(np, host)
            assert there.dtype == here.dtype
            np.testing.assert_allclose(there, here, rtol=2e-3 if here.dtype == np.float16 else 1e-5)
        return "right"

    def cupy_put(name: str, start: str) -> str:
        share = broker.put(cupy.arange(int(start), int(start) + COUNT, dtype="f4"), name)
        return f"{share.device} {share.kind}"

    def cupy_get(name: str, start: str) -> str:
        array, plan = broker.get(name, "cupy", explain=True)
        assert isinstance(array, cupy.ndarray)
        kept.append(array)
        return f"{plan.via} {plan.copies} {right(array, start)}"

    def cupy_put_pending(name: str, start: str, stream: str, verb: str) -> str:
        """A kernel that no call waits for writes the array."""
        one = cupy.asarray(expected(start) - 1)
        array = cupy.zeros_like(one)
        cupy.cuda.runtime.deviceSynchronize()
        on = {"default": cupy.cuda.Stream.null, "side": cupy.cuda.Stream(non_blocking=True), "thread": cupy.cuda.Stream.ptds}[stream]
        with on:
            cupy.add(one, cupy.float32(1), out=array)
            if verb == "put":
                broker.put(array, name)
            elif verb == "unwaited":
                broker.put(array, name, wait=False)
            elif verb == "send":
                kept.append(broker.channel(name).send(array))
            else:
                asyncio.run(broker.channel(name).asend(array))
        broker.flush()
        return "ok"

    def cupy_received(name: str, start: str) -> str:
        return right(broker.channel(name).receive("cupy", timeout=60), start)

    def cupy_layouts(name: str) -> str:
        array = cupy.arange(COUNT, dtype="f4").reshape(10, 100)
        for number, each in enumerate((array[:, 3], array.T, array[::-1], array[0, 0], array[:0])):
            broker.put(each, f"{name}-{number}")
            assert (broker.get(f"{name}-{number}", "numpy") == cupy.asnumpy(each)).all()
        for dtype in TYPES:
            broker.put(cupy.asarray(expected("0", dtype)), f"{name}-{dtype}")
        return "right"

    def cupy_types(name: str) -> str:
        for dtype in TYPES:
            got = broker.get(f"{name}-{dtype}", "cupy")
            assert got.dtype == np.dtype(dtype)
            assert right(got, "0") == "right", dtype
        return "right"

    def cupy_convert(start: str) -> str:
        """Between all pairs of CuPy, PyTorch and Numba on one GPU: the same bytes. And to and from the host: one copy."""
        from numba import cuda

        host = expected(start)
        made = {"cupy": cupy.asarray(host), "torch": torch.from_numpy(host).to("cuda"), "numba": cuda.to_device(host)}
        torch.cuda.synchronize()
        for source, array in made.items():
            for target in made:
                converted, plan = broker.convert(array, target, explain=True)
                assert address(converted) == address(array), (source, target, plan)
                assert plan.copies == 0
            on_host, plan = broker.convert(array, "numpy", explain=True)
            assert plan.copies == 1
            assert (on_host == host).all()
        back = broker.convert(host, "cupy", device="cuda:0")
        assert isinstance(back, cupy.ndarray)
        private, plan = broker.convert(made["cupy"], "cupy", copy=True, explain=True)
        assert address(private) != address(made["cupy"])
        return f"{right(back, start)} {right(private, start)} {plan.via}"

    def cupy_own(name: str, start: str) -> str:
        """A copy may be written, and the share stays as it is."""
        own = broker.get(name, "cupy", copy=True)
        own += 1
        return f"{right(own - 1, start)} {right(broker.get(name, 'cupy'), start)}"

    return {
        each.__name__: each
        for each in (
            compute, cupy_put, cupy_get, cupy_put_pending, cupy_received, cupy_layouts, cupy_types, cupy_convert, cupy_own,
        )
    }  # fmt: skip
