# SPDX-License-Identifier: Apache-2.0
"""Two simulated GPUs, their order, their streams, and a capture: ``two_gpus_program.py ADDRESS NAME [ARGUMENT]``."""

import contextlib
import ctypes
import itertools
import os
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
from fakes import frameworks, gpu, own_copies

import arraybridge
from arraybridge import _core

VALUES = np.arange(12, dtype="f4").reshape(3, 4)
ROUNDS = 1000 if os.environ.get("ARRAYBRIDGE_LONG") else 100


def on_gpu(number: int, framework: str, values: Any = VALUES) -> Any:
    """The framework's array on that GPU; the first is current before and after."""
    gpu.enter(number)
    made = frameworks.ARRAYS[framework].of(values)
    gpu.enter(0)
    assert made.held.device == (2, number), made.held.device
    return made


def another_gpu_than_the_current(broker: arraybridge.Broker, _: str) -> None:
    for source in ("cupy", "torch", "jax"):
        for target in ("cupy", "torch", "jax", "numpy"):
            array = on_gpu(1, source)
            got = broker.convert(array, target)
            if target == "numpy":
                assert (got == VALUES).all()
            else:
                assert got.held.device == (2, 1) and (got.values() == VALUES).all(), (source, target)
                assert got.address == array.address, "handed over where it is"
            assert gpu.current() == 0, (source, target)
        there = broker.convert(on_gpu(0, source), "torch", device="cuda:1")
        assert there.held.device == (2, 1) and (broker.convert(there, "numpy") == VALUES).all() and gpu.current() == 0
        share = broker.put(on_gpu(1, source))
        assert share.device == (2, 1) and gpu.current() == 0
        got = broker.get(share, "torch", device="cuda:0")
        assert got.held.device == (2, 0) and (got.values() == VALUES).all() and gpu.current() == 0


def from_gpu_to_gpu_to_numpy(_: arraybridge.Broker, __: str) -> None:
    """The guides' recipe, for every pair of frameworks that have GPUs."""
    names = ("cupy", "torch", "tensorflow", "jax")
    for source in names:
        for target in names:
            first = on_gpu(0, source)
            second = arraybridge.convert_memory(first, source, target, gpu_id=1)
            assert second.held.device == (2, 1) and second.address != first.address, (source, target)
            assert arraybridge.get_device_id(second, target) == 1 and gpu.current() == 0
            third = arraybridge.convert_memory(second, target, "numpy", gpu_id=1)
            assert type(third) is np.ndarray and third.dtype == VALUES.dtype and (third == VALUES).all()
            assert (first.values() == VALUES).all() and first.held.device == (2, 0) and gpu.current() == 0
            assert arraybridge.convert_memory(second, target, target, gpu_id=1) is second
            back = arraybridge.convert_memory(second, target, source, gpu_id=0)
            assert back.held.device == (2, 0) and (back.values() == VALUES).all()


def put_on_the_second(broker: arraybridge.Broker, _: str) -> None:
    broker.put(on_gpu(1, "torch"), "second")
    print(_core.gpus()[1])


def the_same_gpu_by_another_number(broker: arraybridge.Broker, uuid: str) -> None:
    assert _core.gpus()[0] == uuid, "this process counts the other way round"
    got, plan = broker.get("second", "torch", explain=True)
    assert got.held.device == (2, 0) and plan.zero_copy and (got.values() == VALUES).all()
    by_uuid = broker.get("second", "torch", device=uuid)
    assert by_uuid.held.device == (2, 0) and (by_uuid.values() == VALUES).all()
    moved, plan = broker.get("second", "torch", device="cuda:1", explain=True)
    assert moved.held.device == (2, 1) and (plan.via, plan.copies) == ("d2h+h2d", 2), "neither reaches the other"
    assert (moved.values() == VALUES).all()


def a_consumers_stream_waits_for_its_producers(broker: arraybridge.Broker, _: str) -> None:
    """Both are streams that wait for no other, and the driver runs what is queued as late as it may."""
    driver = ctypes.CDLL("libcuda.so.1")
    fills, reads, block = gpu.stream(), gpu.stream(), gpu.Block(48)
    sys.modules["torch"].current = reads  # type: ignore[attr-defined]
    interface = {"shape": (12,), "typestr": "<i4", "data": (block.address, False), "version": 3, "stream": fills}
    room = ctypes.create_string_buffer(48)
    address, size = ctypes.c_uint64(block.address), ctypes.c_size_t(48)
    for number in range(ROUNDS):
        byte = number % 250 + 1
        gpu.checked(driver.cuMemsetD8Async(address, ctypes.c_ubyte(byte), size, ctypes.c_void_p(fills)))
        source = frameworks.CupyArray(_core.wrap_cuda_array_interface(interface, block))
        got = broker.convert(source, "torch")
        assert got.address == block.address
        gpu.checked(driver.cuMemcpyDtoHAsync_v2(room, address, size, ctypes.c_void_p(reads)))
        gpu.checked(driver.cuStreamSynchronize(ctypes.c_void_p(reads)))
        assert room.raw == bytes([byte]) * 48, (number, byte, room.raw)
        del got, source


def refused(ask: Any, *words: str) -> None:
    try:
        ask()
    except arraybridge.DeviceUnavailable as error:
        assert all(word in str(error) for word in ("CUDA", *words)), error
    else:
        raise AssertionError(words)


def who_sees_some_gpus_numbers_them_as_cuda_does(broker: arraybridge.Broker, _: str) -> None:
    """Told to see the second GPU alone, a framework may call it its first: `gpu_id` is CUDA's number of it."""
    warnings.simplefilter("error", arraybridge.DeviceFallbackWarning)
    second = SimpleNamespace(platform="gpu", local_hardware_id=1)
    sys.modules["tensorflow"].visible = [frameworks.physical(1)]  # type: ignore[attr-defined]
    sys.modules["jax"].local_devices = lambda backend: [second]  # type: ignore[attr-defined]
    for target in ("tensorflow", "jax"):
        for source in (VALUES, on_gpu(0, "cupy"), on_gpu(1, "cupy"), on_gpu(0, "torch")):
            got = arraybridge.convert_memory(source, None, target, gpu_id=1)
            assert got.held.device == (2, 1) and (got.values() == VALUES).all(), (target, got.held.device)
            assert arraybridge.get_device_id(got, target) == 1
            assert arraybridge.convert_memory(got, target, target, gpu_id=1) is got
            assert (arraybridge.convert_memory(got, target, "numpy") == VALUES).all()
            refused(lambda s=source, t=target: arraybridge.convert_memory(s, None, t, 0), "use ['cpu', 'cuda:1']")
            refused(lambda s=source, t=target: arraybridge.convert_memory(s, None, t, 2), "use ['cpu', 'cuda:1']")
        shared = on_gpu(1, "cupy")
        assert broker.convert(shared, target).address == shared.address
        assert broker.convert(VALUES, target, device=1).held.device == (2, 1)
        assert arraybridge.stack_slices([VALUES, shared], target, 1).held.device == (2, 1)
        hidden = f"{target} does not see the CUDA device cuda:0: it can use ['cpu', 'cuda:1']"
        refused(lambda t=target: broker.convert(on_gpu(0, "cupy"), t), hidden)
        refused(lambda t=target: broker.convert(VALUES, t, device=0), hidden)
    sys.modules["tensorflow"].visible = []  # type: ignore[attr-defined]
    warnings.simplefilter("ignore")
    assert not arraybridge.convert_memory(VALUES, "numpy", "tensorflow").on_gpu
    refused(lambda: arraybridge.convert_memory(VALUES, "numpy", "tensorflow", 1), "use ['cpu']")


def tensorflows_order_is_its_own(broker: arraybridge.Broker, _: str) -> None:
    tensorflow: Any = sys.modules["tensorflow"]
    for divided in (lambda gpu: None, lambda gpu: ["half", "half"] if gpu.name.endswith(":1") else None):
        tensorflow.config.get_logical_device_configuration = divided
        tensorflow.visible = [frameworks.physical(1), frameworks.physical(0)]
        for number in (0, 1):
            got = arraybridge.convert_memory(VALUES, "numpy", "tensorflow", number)
            assert got.held.device == (2, number) and arraybridge.get_device_id(got, "tensorflow") == number
            shared = on_gpu(number, "torch")
            got = broker.convert(shared, "tensorflow")
            assert got.address == shared.address and (got.values() == VALUES).all()


def a_capture_outlives_what_is_released_in_it(broker: arraybridge.Broker, _: str) -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    share = broker.put(on_gpu(0, "torch"), "captured")
    for release, blocking in itertools.product(("a share's array", "a View"), (True, False)):
        stream, graph = ctypes.c_void_p(gpu.stream(blocking=blocking)), ctypes.c_void_p()
        held = broker.get("captured", "torch") if release == "a share's array" else arraybridge.asdlpack(share)
        # One that the default stream would wait for can be seen; of others somebody has to say.
        with contextlib.nullcontext() if blocking else arraybridge.capturing():
            gpu.checked(driver.cuStreamBeginCapture_v2(stream, 0))
            del held
            broker.flush()
            leases = broker.stats()["leases"]
            gpu.checked(driver.cuStreamEndCapture(stream, ctypes.byref(graph)))
        broker.flush()
        assert broker.stats()["leases"] < leases, "what was dropped in the capture is given back after it"
    assert (broker.get("captured", "torch").values() == VALUES).all()


warnings.simplefilter("ignore")
gpu.start()
frameworks.install()
own_copies.install(gpus=2)
with arraybridge.Broker(sys.argv[1], namespace="two", start="never") as made:
    globals()[sys.argv[2]](made, *sys.argv[3:] or [""])
    if sys.argv[2] == "put_on_the_second":
        sys.stdout.flush()
        sys.stdin.read()  # its GPU's memory stays until the reader has done
    else:
        print("done")
