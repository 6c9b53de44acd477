# SPDX-License-Identifier: Apache-2.0
"""Converts every pair of real frameworks on the simulated GPU, in one process: ``matrix_program.py ADDRESS``.

Prints JSON: {source: {target: {"cuda": way, "cpu": way}}}. A way is a letter of the documented matrix, or the defect. For
"cpu" the result is asked for on the host.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import cupy_runtime
import numpy as np
import torch

cupy_runtime.load(os.environ["CUPY_RUNTIME_MODULE"])
import cupy
import jax
import jax._src.hardware_utils
import tensorflow as tf
from numba import cuda
from numba.cuda.cudadrv.devicearray import DeviceNDArray

import arraybridge
from arraybridge.errors import DeviceUnavailable

jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True  # it looks for files in /dev
SHAPES = [(2, 3), (6,), (2, 3, 4)]
DTYPES = ["float32", "int64", "uint8"]
broker = arraybridge.Broker(sys.argv[1], start="never")
LETTERS = {"identity": "I", "hand_over": "H", "h2d": "U", "d2h": "D"}


def tensorflow_on_gpu(values: np.ndarray) -> tf.Tensor:
    with tf.device("GPU:0"):
        return tf.constant(values)


MADE: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": lambda values: values,
    "cupy": cupy.asarray,
    "torch": lambda values: torch.from_numpy(values).to("cuda"),
    "tensorflow": tensorflow_on_gpu,
    "jax": lambda values: jax.device_put(values, jax.devices("cuda")[0]),
    "numba": cuda.to_device,
}


def kind(array: Any) -> str | None:
    return "numba" if isinstance(array, DeviceNDArray) else arraybridge.detect_memory_type(array)


def seen(array: Any) -> tuple[bool, int, np.ndarray]:
    """Whether the array is on the GPU, its address, and its values, by means of its own framework."""
    match kind(array):
        case "numpy":
            return False, array.ctypes.data, array
        case "cupy":
            return True, array.data.ptr, cupy.asnumpy(array)
        case "torch":
            return array.is_cuda, array.data_ptr(), array.cpu().numpy()
        case "jax":
            return array.devices() != set(jax.devices("cpu")), array.unsafe_buffer_pointer(), np.asarray(array)
        case "tensorflow":
            capsule = tf.experimental.dlpack.to_dlpack(array)
            return "GPU" in array.device, torch.from_dlpack(capsule).data_ptr(), array.numpy()
        case _:
            values = array.copy_to_host()
            cuda.synchronize()  # an array with a stream of its own is copied later
            return True, array.__cuda_array_interface__["data"][0], values


def way(source: Any, values: np.ndarray, target: str, device: Any) -> str:
    try:
        got, plan = broker.convert(source, target, device=device, explain=True)
    except DeviceUnavailable:
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


def cell(source: str, target: str, device: Any) -> str:
    ways = set()
    for shape in SHAPES:
        for dtype in DTYPES:
            values = (np.arange(np.prod(shape)) + 1).astype(dtype).reshape(shape)
            array = MADE[source](values)
            torch.cuda.synchronize()
            ways.add(way(array, values, target, device))
    return " and ".join(sorted(ways))


warnings.simplefilter("ignore")
with jax.enable_x64(True):
    print(json.dumps({
        source: {target: {"cuda": cell(source, target, None if target == "numpy" else 0), "cpu": cell(source, target, "cpu")} for target in MADE}
        for source in MADE
    }))  # fmt: skip
