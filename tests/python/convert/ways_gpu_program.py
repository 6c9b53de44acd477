# SPDX-License-Identifier: Apache-2.0
"""The three ways on the simulated GPU, beside the driver's own count of copies: ``ways_gpu_program.py ADDRESS NAME``."""

import ctypes
import sys
import warnings
from typing import Any

import numpy as np
from fakes import frameworks, gpu, own_copies
from fakes.gpu import Held

import arraybridge
from arraybridge.conversion import ways

VALUES = np.arange(12, dtype="f4").reshape(3, 4)
TO_HOST = ("cuMemcpyDtoHAsync", "cuMemcpyDtoH")
FROM_HOST = ("cuMemcpyHtoDAsync", "cuMemcpyHtoD")


def counted() -> tuple[int, ...]:
    driver = ctypes.CDLL("libcuda.so.1")
    driver.simulated_cuda_counter.restype = ctypes.c_long
    return tuple(sum(driver.simulated_cuda_counter(name.encode()) for name in names) for names in (TO_HOST, FROM_HOST))


def crossed(way: Any) -> tuple[Any, tuple[int, ...]]:
    """What it gives, and how often bytes went to the host and from it."""
    before = counted()
    got = way()
    return got, tuple(after - earlier for after, earlier in zip(counted(), before, strict=True))


def values_of(array: Any) -> Any:
    return array.values() if isinstance(array, Held) else np.asarray(array)


def cupy_to_tensorflow(broker: arraybridge.Broker) -> None:
    """The oldest of the recipes."""
    array = frameworks.CupyArray.of(VALUES)
    crossings = {"dlpack": (0, 0), "host": (1, 1), "serialize": (1, 1)}
    for via, expected in crossings.items():
        (got, plan), calls = crossed(lambda via=via: broker.convert(array, "tensorflow", via=via, explain=True))
        assert calls == expected and plan.via == via, (via, calls, plan)
        assert isinstance(got, frameworks.TfTensor) and got.on_gpu and (got.values() == VALUES).all()
        again, calls = crossed(lambda via=via: arraybridge.convert_memory(array, "cupy", "tensorflow", 0, via=via))
        assert calls == expected, (via, calls)
        assert again.on_gpu and (again.values() == VALUES).all()
        assert (again.address == array.address) == (via == "dlpack")
    turned = frameworks.CupyArray.of(VALUES, (4, 12))
    assert (arraybridge.from_bytes(arraybridge.to_bytes(turned)) == VALUES).all()
    data = arraybridge.to_bytes(array)
    assert (arraybridge.from_bytes(data) == VALUES).all()
    assert (arraybridge.from_bytes(data, "tensorflow", 0).values() == VALUES).all()


def every_pair_on_the_gpu(broker: arraybridge.Broker) -> None:
    for source in frameworks.ARRAYS:
        for target in frameworks.ARRAYS:
            array = frameworks.ARRAYS[source].of(VALUES)
            for via in ways.WAYS:
                got, plan = broker.convert(array, target, via=via, explain=True)
                assert plan.via == via and got.on_gpu and (got.values() == VALUES).all(), (source, target, plan)
                assert plan.copies == {"dlpack": 0, "host": 2, "serialize": 3}[via], plan
        for via in ("host", "serialize"):
            got, plan = broker.convert(frameworks.ARRAYS[source].of(VALUES), "numpy", via=via, explain=True)
            assert (got == VALUES).all() and plan.via == via
            got, plan = broker.convert(VALUES, source, device="cuda:0", via=via, explain=True)
            assert got.on_gpu and (got.values() == VALUES).all() and plan.via == via
        try:
            broker.convert(frameworks.ARRAYS[source].of(VALUES), "numpy", via="dlpack")
        except arraybridge.UnsupportedArray as error:
            assert 'via="host"' in str(error)
        else:
            raise AssertionError(source)


def between_two_gpus(broker: arraybridge.Broker) -> None:
    turned = frameworks.CupyArray.of(VALUES, (4, 12))
    for via in ("host", "serialize"):
        for array in (frameworks.ARRAYS["torch"].of(VALUES), turned):
            got, plan = broker.convert(array, "torch", device="cuda:1", via=via, explain=True)
            assert got.held.device == (2, 1) and (got.values() == VALUES).all(), plan
            assert plan.via == via
    for via in ("host", "serialize"):
        got = arraybridge.convert_memory(turned, "cupy", "torch", 1, via=via)
        assert got.held.device == (2, 1) and (got.values() == VALUES).all()


warnings.simplefilter("ignore")
gpu.start()
frameworks.install()
own_copies.install(gpus=2)
with arraybridge.Broker(sys.argv[1], namespace="ways", start="never") as made:
    globals()[sys.argv[2]](made)
print("done")
