# SPDX-License-Identifier: Apache-2.0
"""Pinned host memory of the broker, on the simulated driver: ``pinned_program.py ADDRESS NAME``."""

import ctypes
import sys
from typing import Any

import numpy as np
from fakes import gpu
from gpu_programs import refused

import arraybridge
from arraybridge import Broker, _core

NBYTES = 1 << 16


def counter(name: str) -> int:
    driver = ctypes.CDLL("libcuda.so.1")
    driver.simulated_cuda_counter.restype = ctypes.c_long
    return int(driver.simulated_cuda_counter(name.encode()))


def is_pinned(array: Any) -> bool:
    """As torch's is_pinned() asks the driver."""
    kind = ctypes.c_int()
    address = ctypes.c_uint64(array.__array_interface__["data"][0])
    return ctypes.CDLL("libcuda.so.1").cuPointerGetAttribute(ctypes.byref(kind), 2, address) == 0 and kind.value == 1


def an_arena_is_registered_once(broker: Broker) -> None:
    frames = [broker.empty(NBYTES, "uint8", pinned=True) for _ in range(8)]
    assert counter("cuMemHostRegister") == 1 and counter("live_pinned") == 1
    ordinary = broker.empty(NBYTES, "uint8")
    assert all(map(is_pinned, frames)) and not is_pinned(ordinary), "they lie in arenas of their own"
    frames[0][...] = 3
    share = broker.put(frames[0], "frame")
    assert not frames[0].flags.writeable
    got = broker.get("frame")
    assert (got == 3).all() and broker.stats()["client_arenas_written"] == 2, "published where it was born"
    assert share.device == (1, 0)


def what_gpus_still_copy_is_not_used_again(broker: Broker) -> None:
    """The driver executes what is queued as late as it may."""
    driver, stream = ctypes.CDLL("libcuda.so.1"), gpu.stream()
    blocks = [gpu.Block(NBYTES) for _ in range(100)]
    addresses = set()
    for number, block in enumerate(blocks):
        frame = broker.empty(NBYTES, "uint8", pinned=True)
        frame[...] = number
        address = frame.__array_interface__["data"][0]
        addresses.add(address)
        gpu.checked(
            driver.cuMemcpyHtoDAsync_v2(
                ctypes.c_uint64(block.address), ctypes.c_void_p(address), ctypes.c_size_t(NBYTES), ctypes.c_void_p(stream)
            )
        )
        if number % 2:
            broker.put(frame, "frame", replace=True)
        del frame
        if number % 10 == 0:
            broker.flush()
    gpu.checked(driver.cuStreamSynchronize(ctypes.c_void_p(stream)))
    read = np.empty(NBYTES, "uint8")
    for number, block in enumerate(blocks):
        gpu.checked(driver.cuMemcpyDtoH_v2(read.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint64(block.address), ctypes.c_size_t(NBYTES)))
        assert (read == number).all(), (number, read[0])
    assert len(addresses) < len(blocks), "memory is used again"


def it_ends_with_the_broker(broker: Broker) -> None:
    driver, stream, block = ctypes.CDLL("libcuda.so.1"), gpu.stream(), gpu.Block(NBYTES)
    frame = broker.empty(NBYTES, "uint8", pinned=True)
    frame[...] = 9
    gpu.checked(
        driver.cuMemcpyHtoDAsync_v2(
            ctypes.c_uint64(block.address), frame.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(NBYTES), ctypes.c_void_p(stream)
        )
    )
    broker.close()
    assert (frame == 9).all(), "an array outlives its broker"
    del frame


def what_cannot_be_pinned_is_refused(broker: Broker) -> None:
    refused(lambda: broker.empty(3, "uint8", pinned=True, device="cuda"), arraybridge.InvalidRequest, "cuda:0", "pinned")
    refused(lambda: broker.empty(3, "uint8", pinned=1), arraybridge.InvalidRequest, "pinned")  # type: ignore[arg-type]


def a_driver_that_refuses_is_told(broker: Broker) -> None:
    refused(lambda: broker.empty(3, "uint8", pinned=True), arraybridge.BrokerError, "cuMemHostRegister")
    assert broker.stats()["arenas"] == 0, "what could not be pinned is given back"
    assert broker.empty(3, "uint8").shape == (3,)


def without_a_gpu_it_is_refused(broker: Broker) -> None:
    refused(lambda: broker.empty(3, "uint8", pinned=True), arraybridge.DeviceUnavailable, "pinned=True")


if _core.gpus():
    gpu.start()
with Broker(sys.argv[1], start="never") as made:
    globals()[sys.argv[2]](made)
print("done")
