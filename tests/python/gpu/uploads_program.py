# SPDX-License-Identifier: Apache-2.0
"""Host arrays that the client places on the simulated GPU itself, beside the driver's own count: ``uploads_program.py ADDRESS``.
No framework takes part. tests/simulated_cuda/frameworks has the uploads of all packages.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from fakes import gpu
from internals import raw_core

import arraybridge

COUNTERS = ("cuMemHostAlloc", "cuMemcpyHtoDAsync", "cuStreamSynchronize")


def counted(way: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
    """What it gives, and how often the driver was called for it."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.simulated_cuda_counter.restype = ctypes.c_long
    before = [driver.simulated_cuda_counter(name.encode()) for name in COUNTERS]
    got = way()
    after = [driver.simulated_cuda_counter(name.encode()) for name in COUNTERS]
    return got, {name: now - then for name, now, then in zip(COUNTERS, after, before, strict=True)}


def a_put_on_a_gpu_is_one_batch(broker: arraybridge.Broker) -> None:
    views = [arraybridge.asdlpack(np.full(100, number, "i4")) for number in range(20)]
    core = raw_core(broker)
    placement, calls = counted(lambda: core.place(views, device=(2, 0)))
    assert [gpu.read(view)[0] for view in placement.views] == list(range(20))
    assert calls["cuStreamSynchronize"] == 1 and calls["cuMemcpyHtoDAsync"] == 20, calls


gpu.start()
with arraybridge.Broker(sys.argv[1], start="never") as made:
    a_put_on_a_gpu_is_one_batch(made)
print("done")
