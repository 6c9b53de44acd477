# SPDX-License-Identifier: Apache-2.0
"""Memory of the simulated GPU, and arrays over it by address, shape and strides, as every fake framework has them."""

import ctypes
import os
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from arraybridge import _core

LEGACY, VERSIONED = "dltensor", "dltensor_versioned"
_u64 = ctypes.c_uint64
_driver: Any = None


def start() -> None:
    """Makes the first GPU's context current. REQUIRES: libcuda.so.1 is the simulated driver."""
    global _driver
    _driver = ctypes.CDLL("libcuda.so.1")
    checked(_driver.cuInit(0))
    enter(0)


def enter(number: int) -> None:
    """Makes the context of GPU `number` current."""
    context = ctypes.c_void_p()
    checked(_driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
    checked(_driver.cuCtxSetCurrent(context))


def current() -> int:
    """The GPU whose context is current."""
    number = ctypes.c_int()
    checked(_driver.cuCtxGetDevice(ctypes.byref(number)))
    return number.value


def stream(*, blocking: bool = False) -> int:
    """A new one that waits for no other, or, `blocking`, for the default stream, as that does for it."""
    made = ctypes.c_void_p()
    checked(_driver.cuStreamCreate(ctypes.byref(made), 0 if blocking else 1))
    assert made.value is not None
    return made.value


def order(later: int, first: int) -> None:
    """Work that is queued on stream `later` from now on comes after what is queued on `first`."""
    event = ctypes.c_void_p()
    checked(_driver.cuEventCreate(ctypes.byref(event), 2))
    checked(_driver.cuEventRecord(event, ctypes.c_void_p(first)))
    checked(_driver.cuStreamWaitEvent(ctypes.c_void_p(later), event, 0))
    checked(_driver.cuEventDestroy_v2(event))


def wait() -> None:
    """For the legacy default stream, the current one of the fakes. By an event: tests count the driver's other calls."""
    event = ctypes.c_void_p()
    checked(_driver.cuEventCreate(ctypes.byref(event), 2))
    checked(_driver.cuEventRecord(event, None))
    checked(_driver.cuEventSynchronize(event))
    checked(_driver.cuEventDestroy_v2(event))


def synchronize(number: int) -> None:
    """Waits for all work of GPU `number`."""
    enter(number)
    checked(_driver.cuCtxSynchronize())


def checked(result: int) -> None:
    assert result == 0, result


class Block:
    """Bytes on the GPU; freed with the last array over them."""

    def __init__(self, nbytes: int) -> None:
        made = _u64()
        checked(_driver.cuMemAlloc_v2(ctypes.byref(made), ctypes.c_size_t(max(nbytes, 1))))
        self.address = made.value

    def __del__(self) -> None:
        checked(_driver.cuMemFree_v2(_u64(self.address)))


def write(address: int, values: np.ndarray[Any, Any]) -> None:
    """Queues it on the legacy stream."""
    data = np.ascontiguousarray(values)
    if data.nbytes:
        checked(_driver.cuMemcpyHtoD_v2(_u64(address), data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes)))


def read(view: _core.View) -> np.ndarray[Any, Any]:
    """The values of a View on the GPU, whatever its strides."""
    view = view.complete()
    name = view.dtype_name if view.dtype_name != "bfloat16" else "uint16"
    item = np.dtype(name).itemsize
    if not view.size:
        return np.empty(view.shape, name)
    reach = [(size - 1) * stride * item for size, stride in zip(view.shape, view.strides, strict=True)]
    low, high = sum(min(0, each) for each in reach), sum(max(0, each) for each in reach) + item
    room = ctypes.create_string_buffer(high - low)
    before = current()
    enter(view.device[1])  # a broker's block is mapped for its own GPU alone
    checked(_driver.cuMemcpyDtoH_v2(room, _u64(view.address + low), ctypes.c_size_t(high - low)))
    enter(before)
    first = np.frombuffer(room, name, 1, -low)
    return as_strided(first, view.shape, [stride * item for stride in view.strides]).copy()


def copy_to_peer(to: int, to_gpu: int, source: int, source_gpu: int, nbytes: int, _: int) -> None:
    """Memory of one GPU to another's, or to its own, by way of the host."""
    room, before = ctypes.create_string_buffer(nbytes), current()
    enter(source_gpu)
    checked(_driver.cuMemcpyDtoH_v2(room, _u64(source), ctypes.c_size_t(nbytes)))
    enter(to_gpu)
    checked(_driver.cuMemcpyHtoD_v2(_u64(to), room, ctypes.c_size_t(nbytes)))
    enter(before)


class Held:
    """An array of a fake framework: it holds a View, of host memory or the GPU's."""

    def __init__(self, view: _core.View, owner: object = None) -> None:
        self.held, self.owner = view, owner
        self.asked: list[dict[str, Any]] = []  # keywords of each export

    @classmethod
    def of(cls, values: np.ndarray[Any, Any], strides: tuple[int, ...] | None = None, offset: int = 0) -> Any:
        """On the GPU, with these values. `strides` in bytes and `offset`: how the array lies in its block, if not
        compactly."""
        block = Block(max(4 * values.nbytes, 256))
        interface = {
            "shape": values.shape, "typestr": values.dtype.str, "data": (block.address + offset, False), "version": 3,
            "strides": strides, "stream": None,
        }  # fmt: skip
        if strides is None:
            write(block.address, values)
        else:
            lying = np.zeros(max(4 * values.nbytes, 256), np.uint8)
            np.ndarray(values.shape, values.dtype, lying, offset, strides)[...] = values
            write(block.address, lying)
        wait()  # the interface says that it is complete
        if not values.size:
            interface["data"] = (0, False)
        made = cls(_core.wrap_cuda_array_interface(interface, block))
        made.owner = block
        return made

    @property
    def address(self) -> int:
        return self.held.address

    @property
    def on_gpu(self) -> bool:
        return self.held.device[0] == 2

    @property
    def shape(self) -> tuple[int, ...]:
        return self.held.shape

    @property
    def ndim(self) -> int:
        return self.held.ndim

    def values(self) -> np.ndarray[Any, Any]:
        return read(self.held) if self.on_gpu else np.asarray(self.held)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.held.device

    def exported(self, dialect: str, **keywords: Any) -> Any:
        """A capsule of that dialect; the keywords are remembered."""
        self.asked.append(keywords)
        return self.held.__dlpack__(max_version=(1, 0) if dialect == VERSIONED else None)


def taken(source: Any, dialects: tuple[str, ...], **keywords: Any) -> _core.View:
    """What a consumer gets that calls source.__dlpack__ with these keywords. A capsule of another dialect is refused, as
    real consumers do."""
    capsule = source.__dlpack__(**keywords)
    return consumed(capsule, dialects)


def consumed(capsule: Any, dialects: tuple[str, ...]) -> _core.View:
    if not any(f'"{dialect}"' in repr(capsule) for dialect in dialects):
        raise RuntimeError(f"a capsule of another dialect: {capsule}")
    return _core.wrap(capsule)


def labelled(capsule: Any) -> tuple[int, int]:
    """The device that an unversioned capsule says, which need not be the one that its memory is on."""
    kind, number = _label(capsule)
    return kind, number


def _label(capsule: Any) -> Any:
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    return (ctypes.c_int32 * 2).from_address(pointer(capsule, LEGACY.encode()) + 8)


def ordinal(address: int) -> int:
    """The GPU that memory is on, by the driver's word."""
    found = ctypes.c_int()
    checked(_driver.cuPointerGetAttribute(ctypes.byref(found), 9, _u64(address)))
    return found.value


def abort(why: str) -> None:
    """What some frameworks do instead of raising."""
    os.write(2, f"the framework aborts: {why}\n".encode())
    os.abort()
