# SPDX-License-Identifier: Apache-2.0
"""What each real package does with arrays on the simulated GPUs, in its own words."""

import ctypes
import functools
import os
import sys
from typing import Any

import cupy_runtime
import numba_ptx
import numpy as np
from shares import of_a_framework, view_of
from xla_packages import Jax, Tensorflow

import arraybridge

THREADS = 128  # of a block of Numba's kernels


def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def calls(name: str) -> int:
    """A counter of the simulated driver in this process."""
    counter = driver().simulated_cuda_counter
    counter.restype = ctypes.c_long
    return int(counter(name.encode()))


def current() -> int:
    """The GPU whose context is current; -1: none is."""
    number = ctypes.c_int()
    return number.value if driver().cuCtxGetDevice(ctypes.byref(number)) == 0 else -1


class Torch:
    """It copies. Its kernels are machine code, which does not run here."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.cuda.init()
        torch.cuda.set_device(0)

    def made(self, values: np.ndarray, gpu: int) -> Any:
        array = self.torch.from_numpy(values).to(f"cuda:{gpu}")
        self.torch.cuda.synchronize(gpu)
        return array

    def pending(self, values: np.ndarray) -> Any:
        """An array that queued work on a stream of its own writes, and a context in which that stream is the current one."""
        source = self.made(values, 0)
        array = self.torch.empty_like(source)
        stream = self.torch.cuda.Stream()
        self.torch.cuda.synchronize()
        with self.torch.cuda.stream(stream):
            array.copy_(source, non_blocking=True)
        return array, self.torch.cuda.stream(stream)

    def side(self) -> Any:
        """A context in which the current stream is one that waits for no other."""
        return self.torch.cuda.stream(self.torch.cuda.Stream())

    def write(self, array: Any) -> Any:
        """Adds 1, by work on the GPU. Returns the array, or of a package whose arrays are constant, another one."""
        array.copy_(array.cpu() + 1)
        self.torch.cuda.synchronize(array.device)
        return array

    def values(self, array: Any) -> np.ndarray:
        return array.cpu().numpy()

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def gpu(self, array: Any) -> int:
        return int(array.device.index)

    def got(self, broker: arraybridge.Broker, name: str, **wishes: Any) -> tuple[Any, str]:
        return of_a_framework("torch", broker, name, wishes)


class Cupy:
    def __init__(self) -> None:
        if "cupy" not in sys.modules:
            cupy_runtime.load(os.environ["CUPY_RUNTIME_MODULE"])
        import cupy

        self.cupy = cupy
        cupy.zeros(1)  # a context is current

    def made(self, values: np.ndarray, gpu: int) -> Any:
        with self.cupy.cuda.Device(gpu):
            array = self.cupy.asarray(values)
            self.cupy.cuda.runtime.deviceSynchronize()
        return array

    def pending(self, values: np.ndarray) -> Any:
        source = self.made(values - 1, 0)
        array = self.cupy.zeros_like(source)
        stream = self.cupy.cuda.Stream(non_blocking=True)
        self.cupy.cuda.runtime.deviceSynchronize()
        with stream:
            self.cupy.add(source, self.cupy.float32(1), out=array)
        return array, stream

    def side(self) -> Any:
        return self.cupy.cuda.Stream(non_blocking=True)

    def write(self, array: Any) -> Any:
        with self.cupy.cuda.Device(self.gpu(array)):
            array += 1
            self.cupy.cuda.get_current_stream().synchronize()
        return array

    def values(self, array: Any) -> np.ndarray:
        with self.cupy.cuda.Device(self.gpu(array)):
            return self.cupy.asnumpy(array)

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def gpu(self, array: Any) -> int:
        return int(array.device.id)

    def got(self, broker: arraybridge.Broker, name: str, **wishes: Any) -> tuple[Any, str]:
        return of_a_framework("cupy", broker, name, wishes)


class Numba:
    """It has no current stream: a kernel is launched on one."""

    def __init__(self) -> None:
        from numba import cuda

        numba_ptx.link_ptx()

        def plus(target: Any, source: Any, number: Any) -> None:
            place = cuda.grid(1)
            if place < target.size:
                target[place] = source[place] + number

        self.cuda = cuda
        self.plus = cuda.jit(plus)
        for gpu in cuda.gpus:  # what makes the context of a GPU makes it current, and a later end of that leaves none
            gpu.get_primary_context()
        cuda.gpus[0].get_primary_context().push()

    def add(self, target: Any, source: Any, number: float, stream: Any) -> None:
        """A kernel on this stream that writes source + number into target."""
        self.plus[-(-target.size // THREADS), THREADS, stream](target, source, np.float32(number))

    def made(self, values: np.ndarray, gpu: int) -> Any:
        with self.cuda.gpus[gpu]:
            array = self.cuda.to_device(values)
            self.cuda.synchronize()
        return array

    def pending(self, values: np.ndarray) -> Any:
        stream = self.cuda.stream()
        source = self.made(values - 1, 0)
        array = self.cuda.device_array(values.shape, values.dtype, stream=stream)
        self.cuda.synchronize()
        self.add(array, source, 1, stream)
        return array, self.cuda.gpus[0]

    def side(self) -> Any:
        return self.cuda.gpus[0]

    def write(self, array: Any) -> Any:
        with self.cuda.gpus[self.gpu(array)]:
            self.add(array, array, 1, 0)
            self.cuda.synchronize()
        return array

    def values(self, array: Any) -> np.ndarray:
        with self.cuda.gpus[self.gpu(array)]:
            values = array.copy_to_host()
            self.cuda.synchronize()  # an array with a stream of its own is copied later
            return values

    def address(self, array: Any) -> int:
        return int(array.__cuda_array_interface__["data"][0])

    def gpu(self, array: Any) -> int:
        return int(array.gpu_data.context.device.id)

    def got(self, broker: arraybridge.Broker, name: str, **wishes: Any) -> tuple[Any, str]:
        return of_a_framework("numba", broker, name, wishes)


class CudaCore:
    """cuda.core has views of memory, of buffers of its own and of a share's View. It is no framework of Broker.get."""

    def __init__(self) -> None:
        from cuda import core
        from cuda.core import utils

        self.core, self.utils = core, utils
        core.Device(0).set_current()
        self.streams: dict[int, Any] = {}

    def stream(self, gpu: int) -> Any:
        """A stream on this GPU, whose context is current from now on."""
        device = self.core.Device(gpu)
        device.set_current()
        if gpu not in self.streams:
            self.streams[gpu] = device.create_stream()
        return self.streams[gpu]

    def pinned(self, nbytes: int) -> tuple[Any, np.ndarray]:
        """Pinned host memory, and an array of its bytes."""
        buffer = self.core.LegacyPinnedMemoryResource().allocate(nbytes)
        return buffer, np.from_dlpack(buffer)

    def made(self, values: np.ndarray, gpu: int) -> Any:
        before, stream = current(), self.stream(gpu)
        buffer = self.core.Device(gpu).allocate(values.nbytes, stream=stream)
        self.core.Device(before).set_current()
        array = self.utils.StridedMemoryView.from_buffer(buffer, values.shape, dtype=values.dtype)
        self.fill(array, values)
        return array

    def fill(self, array: Any, values: np.ndarray) -> None:
        before, stream = current(), self.stream(self.gpu(array))
        host, room = self.pinned(values.nbytes)
        room.view(values.dtype)[:] = values
        self.core.Buffer.from_handle(array.ptr, values.nbytes, owner=array).copy_from(host, stream=stream)
        stream.sync()
        self.core.Device(before).set_current()

    def write(self, array: Any) -> Any:
        self.fill(array, self.values(array) + 1)
        return array

    def values(self, array: Any) -> np.ndarray:
        before, stream = current(), self.stream(self.gpu(array))
        nbytes = array.size * array.dtype.itemsize
        host, room = self.pinned(nbytes)
        self.core.Buffer.from_handle(array.ptr, nbytes, owner=array).copy_to(host, stream=stream)
        stream.sync()
        self.core.Device(before).set_current()
        return room.view(array.dtype).reshape(array.shape).copy()

    def address(self, array: Any) -> int:
        return int(array.ptr)

    def gpu(self, array: Any) -> int:
        return int(array.device_id)

    def got(self, broker: arraybridge.Broker, name: str) -> tuple[Any, str]:
        """For a stream of cuda.core, which waits for the share's bytes."""
        view = view_of(broker, name)
        before, stream = current(), self.stream(view.device[1])
        array = self.utils.StridedMemoryView.from_any_interface(view, stream_ptr=int(stream.handle))
        self.core.Device(before).set_current()
        return array, "view"


KINDS: dict[str, type] = {
    "torch": Torch, "cupy": Cupy, "numba": Numba, "cuda.core": CudaCore, "jax": Jax, "tensorflow": Tensorflow,
}  # fmt: skip


@functools.cache
def package(name: str) -> Any:
    """The package, which is imported by the first call."""
    return KINDS[name]()
