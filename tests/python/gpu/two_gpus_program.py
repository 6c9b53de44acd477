# SPDX-License-Identifier: Apache-2.0
"""JAX and TensorFlow on two simulated GPUs, some of which they see, in an order of their own: ``two_gpus_program.py ADDRESS NAME``.

With fakes, because a process of the real packages can choose its GPUs once, and because these copy from one GPU to another
by calls that the simulated driver lacks. tests/simulated_cuda/frameworks has all else that they do with both GPUs.
"""

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
from fakes import frameworks, gpu, own_copies

import arraybridge

VALUES = np.arange(12, dtype="f4").reshape(3, 4)


def on_gpu(number: int, framework: str, values: Any = VALUES) -> Any:
    """The framework's array on that GPU; the first is current before and after."""
    gpu.enter(number)
    made = frameworks.ARRAYS[framework].of(values)
    gpu.enter(0)
    assert made.held.device == (2, number), made.held.device
    return made


def from_gpu_to_gpu_to_numpy(_: arraybridge.Broker) -> None:
    """The guides' recipe, for every pair with TensorFlow or JAX."""
    names = ("cupy", "torch", "tensorflow", "jax")
    for source in names:
        for target in names if source in ("tensorflow", "jax") else ("tensorflow", "jax"):
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


def refused(ask: Any, *words: str) -> None:
    try:
        ask()
    except arraybridge.DeviceUnavailable as error:
        assert all(word in str(error) for word in ("CUDA", *words)), error
    else:
        raise AssertionError(words)


def who_sees_some_gpus_numbers_them_as_cuda_does(broker: arraybridge.Broker) -> None:
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


def tensorflows_order_is_its_own(broker: arraybridge.Broker) -> None:
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


warnings.simplefilter("ignore")
gpu.start()
frameworks.install()
own_copies.install(gpus=2)
with arraybridge.Broker(sys.argv[1], namespace="two", start="never") as made:
    globals()[sys.argv[2]](made)
print("done")
