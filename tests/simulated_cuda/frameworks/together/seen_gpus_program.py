# SPDX-License-Identifier: Apache-2.0
"""JAX and TensorFlow on two simulated GPUs, told by their own settings which of them to see: ``seen_gpus_program.py ADDRESS SEEN``.

SEEN are the ordinals that TensorFlow is told, in its order: "1", "1,0", or "" for none. JAX, which has no order, sees these too.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import tensorflow
from real_packages import package

import arraybridge

SEEN = [int(each) for each in sys.argv[2].split(",") if each]
VALUES = np.arange(12, dtype="f4").reshape(3, 4)
XLA = ("tensorflow", "jax") if SEEN else ("tensorflow",)


def refused(ask: Callable[[], object], *words: str) -> None:
    try:
        got = ask()
    except arraybridge.DeviceUnavailable as error:
        assert all(word in str(error) for word in ("CUDA", *words)), error
    else:
        raise AssertionError(f"{got!r} {words}")


def lies_on(array: Any, framework: str, number: int) -> None:
    """By CUDA's count, whatever the framework calls the GPU."""
    assert arraybridge.get_device_id(array, framework) == number
    (lies,) = {package("cupy").gpu(arraybridge.convert_memory(array, framework, "cupy", number))}
    assert lies == number
    assert (arraybridge.convert_memory(array, framework, "numpy") == VALUES).all()


def who_sees_one_numbers_it_as_cuda_does(broker: arraybridge.Broker) -> None:
    """Told to see the second GPU alone, a framework calls it its first: `gpu_id` is CUDA's number of it."""
    (number,) = SEEN
    hidden = 1 - number
    usable = f"use ['cpu', 'cuda:{number}']"
    for target in XLA:
        for of, gpu in (("cupy", 0), ("cupy", 1), ("torch", 0)):
            for source in (VALUES, package(of).made(VALUES, gpu)):
                got = arraybridge.convert_memory(source, None, target, gpu_id=number)
                lies_on(got, target, number)
                assert arraybridge.convert_memory(got, target, target, gpu_id=number) is got
                refused(lambda s=source, t=target: arraybridge.convert_memory(s, None, t, hidden), usable)
                refused(lambda s=source, t=target: arraybridge.convert_memory(s, None, t, 2), usable)
        shared = package("cupy").made(VALUES, number)
        assert package(target).address(broker.convert(shared, target)) == shared.data.ptr
        lies_on(broker.convert(VALUES, target, device=number), target, number)
        assert arraybridge.get_device_id(arraybridge.stack_slices([VALUES, shared], target, number), target) == number
        refusal = f"{target} does not see the CUDA device cuda:{hidden}: it can use ['cpu', 'cuda:{number}']"
        refused(lambda t=target: broker.convert(package("cupy").made(VALUES, hidden), t), refusal)
        refused(lambda t=target: broker.convert(VALUES, t, device=hidden), refusal)


def tensorflows_order_is_its_own(broker: arraybridge.Broker) -> None:
    for number in SEEN:
        lies_on(arraybridge.convert_memory(VALUES, "numpy", "tensorflow", number), "tensorflow", number)
        shared = package("torch").made(VALUES, number)
        got = broker.convert(shared, "tensorflow")
        assert package("tensorflow").address(got) == shared.data_ptr()
        assert f"GPU:{2 * SEEN.index(number)}" in got.device, "the first one is divided into two"


def tensorflow_sees_none(broker: arraybridge.Broker) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "CPU" in arraybridge.convert_memory(VALUES, "numpy", "tensorflow").device
    refused(lambda: arraybridge.convert_memory(VALUES, "numpy", "tensorflow", 1), "use ['cpu']")


gpus = tensorflow.config.list_physical_devices("GPU")
assert len(gpus) == 2, gpus
if SEEN:
    jax.config.update("jax_cuda_visible_devices", ",".join(map(str, sorted(SEEN))))
    package("jax")  # before a conversion begins to use JAX, which looks for GPUs once
tensorflow.config.set_visible_devices([gpus[number] for number in SEEN], "GPU")
if len(SEEN) == 2:
    half = tensorflow.config.LogicalDeviceConfiguration(memory_limit=16)  # MiB
    tensorflow.config.set_logical_device_configuration(gpus[SEEN[0]], [half, half])
warnings.simplefilter("error", arraybridge.DeviceFallbackWarning)
with arraybridge.Broker(sys.argv[1], start="never") as made:
    [tensorflow_sees_none, who_sees_one_numbers_it_as_cuda_does, tensorflows_order_is_its_own][len(SEEN)](made)
print("right")
