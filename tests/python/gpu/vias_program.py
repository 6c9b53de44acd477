# SPDX-License-Identifier: Apache-2.0
"""What a Plan says of a copy for JAX and TensorFlow, beside what the simulated driver was asked for: ``vias_program.py ADDRESS``.

tests/simulated_cuda/frameworks does so for packages that run there.
"""

import ctypes
import sys
import warnings
from collections.abc import Callable

import numpy as np
from fakes import frameworks, gpu, own_copies

import arraybridge
from arraybridge import _core
from arraybridge.planner import Converted

VALUES = np.arange(12, dtype="f4").reshape(3, 4)
# Copies that cross: on the GPUs, to the host, from it.
ACROSS = (("cuMemcpyAsync", "cuMemcpyDtoDAsync"), ("cuMemcpyDtoHAsync",), ("cuMemcpyHtoDAsync",))
CROSSINGS = {"d2h+h2d": (0, 1, 1)}


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
    assert (got.values() == VALUES).all(), got.values()


def strided_and_wide_arrays(broker: arraybridge.Broker) -> None:
    turned = arraybridge.asdlpack(frameworks.CupyArray.of(VALUES, strides=(4, 12)))
    check(lambda: broker.convert(turned, "tensorflow", explain=True), "d2h+h2d", 3)
    wide = frameworks.CupyArray.of(VALUES.astype("f8"))
    sys.modules["jax"].config.jax_enable_x64 = False  # type: ignore[attr-defined]
    check(lambda: broker.convert(wide, "jax", allow_downcast=True, explain=True), "d2h+h2d", 3)


warnings.simplefilter("ignore")
gpu.start()
frameworks.install()
own_copies.install(gpus=len(_core.gpus()))
with arraybridge.Broker(sys.argv[1], namespace="vias", start="never") as made:
    strided_and_wide_arrays(made)
print("done")
