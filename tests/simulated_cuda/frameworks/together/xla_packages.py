# SPDX-License-Identifier: Apache-2.0
"""What JAX and TensorFlow do with arrays on the simulated GPUs, in their own words. Their kernels are those of XLA."""

import contextlib
import ctypes
from typing import Any

import numpy as np
from shares import of_a_framework

import arraybridge


def work_waits(milliseconds: int = 500) -> None:
    """For so long, or until a call of the driver waits for it, no queued work runs."""
    ctypes.CDLL("libcuda.so.1").simulated_cuda_pause(milliseconds)


class Jax:
    def __init__(self) -> None:
        import jax
        import jax._src.hardware_utils

        jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True  # it looks for files in /dev
        self.jax = jax
        self.gpus = {each.local_hardware_id: each for each in jax.local_devices(backend="cuda")}
        self.next_one = jax.jit(lambda array: array + 1)

    def made(self, values: np.ndarray, gpu: int) -> Any:
        return self.jax.device_put(values, self.gpus[gpu]).block_until_ready()

    def write(self, array: Any) -> Any:
        return self.next_one(array).block_until_ready()

    def pending(self, values: np.ndarray, gpu: int = 0) -> Any:
        source = self.made(values - 1, gpu)
        self.write(source)  # compiled
        work_waits()
        array = self.next_one(source)
        assert not array.is_ready()
        return array, contextlib.nullcontext()

    def side(self) -> Any:
        return contextlib.nullcontext()

    def values(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def address(self, array: Any) -> int:
        return int(array.unsafe_buffer_pointer())

    def gpu(self, array: Any) -> int:
        (device,) = array.devices()
        assert device.platform == "gpu"
        return int(device.local_hardware_id)

    def got(self, broker: arraybridge.Broker, name: str, **wishes: Any) -> tuple[Any, str]:
        return of_a_framework("jax", broker, name, wishes)


class Tensorflow:
    """Its own kernels are machine code, which does not run here."""

    def __init__(self) -> None:
        import tensorflow
        import torch

        self.tensorflow, self.torch = tensorflow, torch
        self.next_one = tensorflow.function(lambda array: array + 1, jit_compile=True)

    def made(self, values: np.ndarray, gpu: int) -> Any:
        with self.tensorflow.device(f"GPU:{gpu}"):
            return self.tensorflow.constant(values)

    def write(self, array: Any) -> Any:
        with self.tensorflow.device(array.device):
            changed = self.next_one(array)
        changed.numpy()  # it is done
        return changed

    def pending(self, values: np.ndarray, gpu: int = 0) -> Any:
        source = self.made(values - 1, gpu)
        self.write(source)  # compiled
        with self.tensorflow.device(source.device):
            work_waits()
            return self.next_one(source), contextlib.nullcontext()

    def side(self) -> Any:
        return contextlib.nullcontext()

    def values(self, array: Any) -> np.ndarray:
        return array.numpy()

    def address(self, array: Any) -> int:
        return int(self.torch.from_dlpack(self.tensorflow.experimental.dlpack.to_dlpack(array)).data_ptr())

    def gpu(self, array: Any) -> int:
        kind, _, number = array.device.rpartition("device:")[2].partition(":")
        assert kind == "GPU", array.device
        return int(number)

    def got(self, broker: arraybridge.Broker, name: str, **wishes: Any) -> tuple[Any, str]:
        return of_a_framework("tensorflow", broker, name, wishes)
