# SPDX-License-Identifier: Apache-2.0
"""What share_program.py does with every pair of real packages on the simulated GPU: it converts one into the other."""

import itertools
import json
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numba.cuda.cudadrv.devicearray import DeviceNDArray
from real_packages import package

import arraybridge
from arraybridge.errors import DeviceUnavailable, ZeroCopyUnavailable

package("jax")  # before a conversion begins to use JAX, which looks for GPUs once
SHAPES = [(2, 3), (6,), (2, 3, 4)]
DTYPES = ["float32", "int64", "uint8"]
LETTERS = {"identity": "I", "hand_over": "H", "h2d": "U", "d2h": "D"}
NAMES = ("numpy", "cupy", "torch", "tensorflow", "jax", "numba")
# Whether an array of a framework that has arrays on the host, too, is on a GPU.
ON_GPU: dict[str, Callable[[Any], bool]] = {
    "numpy": lambda array: False,
    "torch": lambda array: array.is_cuda,
    "tensorflow": lambda array: "GPU" in array.device,
    "jax": lambda array: all(each.platform == "gpu" for each in array.devices()),
}


def kind(array: Any) -> str | None:
    return "numba" if isinstance(array, DeviceNDArray) else arraybridge.detect_memory_type(array)


def seen(array: Any) -> tuple[bool, int, np.ndarray]:
    """Whether the array is on the GPU, its address, and its values, by means of its own framework."""
    name = kind(array)
    assert name is not None
    if name == "numpy":
        return False, array.ctypes.data, array
    own = package(name)
    return name not in ON_GPU or ON_GPU[name](array), own.address(array), own.values(array)


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    def way(source: Any, values: np.ndarray, target: str, device: Any, copy: bool | None) -> str:
        """A letter of the documented matrix, or the defect."""
        try:
            got, plan = broker.convert(source, target, device=device, copy=copy, explain=True)
        except (DeviceUnavailable, ZeroCopyUnavailable):
            return "–"
        if kind(got) != target:
            return f"a {type(got)}"
        on_gpu, address, found = seen(got)
        if found.shape != values.shape or found.dtype != values.dtype or (found != values).any():
            return f"other values: {found}"
        if on_gpu != (plan.device == "cuda:0"):
            return f"on the GPU: {on_gpu}, {plan}"
        if (address == seen(source)[1]) != plan.zero_copy:
            return f"shared: {not plan.zero_copy}, {plan}"
        return LETTERS.get(plan.route) or LETTERS.get(plan.via or "", "P")

    def cell(source: str, target: str, device: Any, copy: bool | None = None) -> str:
        ways = set()
        for shape, dtype in itertools.product(SHAPES, DTYPES):
            values = (np.arange(np.prod(shape)) + 1).astype(dtype).reshape(shape)
            array = values if source == "numpy" else package(source).made(values, 0)
            ways.add(way(array, values, target, device, copy))
        return " and ".join(sorted(ways))

    def cells(source: str, target: str, device: int | None) -> dict[str, str]:
        return {
            "cuda": cell(source, target, device),
            "copy": cell(source, target, device, True),
            "shared": cell(source, target, device, False),
            "cpu": cell(source, target, "cpu"),
        }

    def matrix() -> str:
        """JSON: {source: {target: {"cuda": way, "copy": way, "shared": way, "cpu": way}}}: on the GPU, with copy=True, copy=False, on the host."""
        with warnings.catch_warnings(), jax.enable_x64(True):
            warnings.simplefilter("ignore")
            return json.dumps(
                {source: {target: cells(source, target, None if target == "numpy" else 0) for target in NAMES} for source in NAMES}
            )

    return {matrix.__name__: matrix}
