# SPDX-License-Identifier: Apache-2.0
"""What a Plan says of a copy, beside what the simulated driver was asked for: ``vias_program.py ADDRESS NAME``."""

import ctypes
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from fakes import frameworks, gpu, own_copies

import arraybridge
from arraybridge import _core
from arraybridge.planner import Converted

VALUES = np.arange(12, dtype="f4").reshape(3, 4)
# Copies that cross: on the GPUs, to the host, from it.
ACROSS = (("cuMemcpyAsync", "cuMemcpyDtoDAsync"), ("cuMemcpyDtoHAsync",), ("cuMemcpyHtoDAsync",))
CROSSINGS = {"d2d-copy": (1, 0, 0), "d2h": (0, 1, 0), "h2d": (0, 0, 1), "d2h+h2d": (0, 1, 1), "zero-copy-vmm": (0, 0, 0)}


def on_gpu(number: int, framework: str, values: Any = VALUES, **form: Any) -> Any:
    gpu.enter(number)
    made = frameworks.ARRAYS[framework].of(values, **form)
    gpu.enter(0)
    return made


def crossed() -> tuple[int, ...]:
    driver = ctypes.CDLL("libcuda.so.1")
    driver.simulated_cuda_counter.restype = ctypes.c_long
    return tuple(sum(driver.simulated_cuda_counter(name.encode()) for name in names) for names in ACROSS)


def check(way: Callable[[], Converted], via: str, copies: int) -> None:
    """The Plan says `via`, and so does the driver."""
    before = crossed()
    got, plan = way()
    calls = tuple(after - earlier for after, earlier in zip(crossed(), before, strict=True))
    assert calls == CROSSINGS[via], (via, calls, plan)
    assert (plan.via, plan.copies) == (via, copies), plan
    values = got if isinstance(got, np.ndarray) else got.values()
    assert (values == VALUES).all(), values


def refused(way: Callable[[], Any], why: str) -> None:
    """Nothing is copied, and the error says what would have been."""
    before = crossed()
    try:
        way()
    except arraybridge.ZeroCopyUnavailable as error:
        assert why in str(error), error
    else:
        raise AssertionError("it was not refused")
    assert crossed() == before


def between_gpus(broker: arraybridge.Broker, via: str) -> None:
    copies = 2 if via == "d2h+h2d" else 1
    array = on_gpu(0, "torch")
    check(lambda: broker.convert(array, "torch", device="cuda:1", explain=True), via, copies)
    broker.put(on_gpu(1, "torch"), "there", replace=True)
    check(lambda: broker.get("there", "torch", device="cuda:0", explain=True), via, copies)
    assert _core.gpu_reaches(0, 1) == (via == "d2d-copy")
    assert _core.gpu_reaches(1, 1)
    assert not _core.gpu_reaches(0, 2)
    assert not _core.gpu_reaches(-1, 0)


def on_one_gpu(broker: arraybridge.Broker, _: str) -> None:
    array = on_gpu(0, "torch")
    turned = arraybridge.asdlpack(on_gpu(0, "cupy", strides=(4, 12)))
    broker.put(array, "s")
    broker.put(VALUES, "h")
    check(lambda: broker.convert(array, "torch", copy=True, explain=True), "d2d-copy", 1)
    check(lambda: broker.convert(turned, "torch", copy=True, explain=True), "d2h+h2d", 3)
    check(lambda: broker.convert(turned, "tensorflow", explain=True), "d2h+h2d", 3)
    check(lambda: broker.convert(turned, "numpy", explain=True), "d2h", 2)
    check(lambda: broker.get("s", "torch", explain=True), "zero-copy-vmm", 0)
    check(lambda: broker.get("s", "torch", require="zero-copy", explain=True), "zero-copy-vmm", 0)
    refused(lambda: broker.get("s", "numpy", require="zero-copy"), "different_device: from cuda:0 to cpu")
    refused(lambda: broker.get("h", "torch", device="cuda:0", require="zero-copy"), "different_device: from cpu to cuda:0")
    check(lambda: broker.get("s", "torch", copy=True, explain=True), "d2d-copy", 1)
    check(lambda: broker.get("s", "numpy", explain=True), "d2h", 1)
    check(lambda: broker.get("h", "torch", device="cuda:0", explain=True), "h2d", 1)
    wide = on_gpu(0, "torch", VALUES.astype("f8"))
    sys.modules["jax"].config.jax_enable_x64 = False  # type: ignore[attr-defined]
    check(lambda: broker.convert(wide, "jax", allow_downcast=True, explain=True), "d2h+h2d", 3)


warnings.simplefilter("ignore")
gpu.start()
frameworks.install()
own_copies.install(gpus=len(_core.gpus()))
with arraybridge.Broker(sys.argv[1], namespace="vias", start="never") as made:
    globals()[sys.argv[2]](made, *sys.argv[3:] or [""])
print("done")
