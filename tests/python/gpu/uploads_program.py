# SPDX-License-Identifier: Apache-2.0
"""Host arrays on their way to JAX and TensorFlow on the simulated GPU, beside the driver's own count:
``uploads_program.py ADDRESS NAME``. tests/simulated_cuda/frameworks does so for packages that run there.
"""

import ctypes
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from fakes import frameworks, gpu, own_copies
from internals import raw_core

import arraybridge
from arraybridge import _core

CHUNK = 4 << 20
COUNTERS = ("cuMemHostAlloc", "cuMemcpyHtoDAsync", "cuStreamSynchronize")


def counted(way: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
    """What it gives, and how often the driver was called for it."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.simulated_cuda_counter.restype = ctypes.c_long
    before = [driver.simulated_cuda_counter(name.encode()) for name in COUNTERS]
    got = way()
    after = [driver.simulated_cuda_counter(name.encode()) for name in COUNTERS]
    return got, {name: now - then for name, now, then in zip(COUNTERS, after, before, strict=True)}


def large(nbytes: int) -> Any:
    return np.arange(nbytes, dtype="u1")


def a_large_array_goes_by_pinned_chunks(broker: arraybridge.Broker) -> None:
    values = large(5 * CHUNK + 3)
    for allocated in (2, 0):
        got, calls = counted(lambda: broker.convert(values, "jax", device=0))
        assert (got.values() == values).all() and calls["cuMemcpyHtoDAsync"] == 6 and calls["cuStreamSynchronize"] == 1, calls
        assert calls["cuMemHostAlloc"] == allocated, "the chunks are kept"


def a_tree_is_one_batch(broker: arraybridge.Broker) -> None:
    tree = {"layers": [np.full((10, number + 1), number, "f4") for number in range(50)], "last": (large(CHUNK), 3)}
    for target in ("jax", "tensorflow"):
        (got, plan), calls = counted(lambda target=target: broker.convert(tree, target, device="cuda:0", explain=True))
        assert [each.values().tolist() for each in got["layers"]] == [each.tolist() for each in tree["layers"]]
        assert (got["last"][0].values() == tree["last"][0]).all() and got["last"][1] == 3
        assert plan.copies == 51 and plan.via == "h2d" and calls["cuStreamSynchronize"] == 1, (plan, calls)
        assert 51 <= calls["cuMemcpyHtoDAsync"] <= 53, "a piece for each array, and one more where a chunk ends"


def a_put_on_a_gpu_is_one_batch(broker: arraybridge.Broker) -> None:
    views = [arraybridge.asdlpack(np.full(100, number, "i4")) for number in range(20)]
    core = raw_core(broker)
    placement, calls = counted(lambda: core.place(views, device=(2, 0)))
    assert [gpu.read(view)[0] for view in placement.views] == list(range(20))
    assert calls["cuStreamSynchronize"] == 1 and calls["cuMemcpyHtoDAsync"] == 20, calls


warnings.simplefilter("ignore")
gpu.start()
frameworks.install()
own_copies.install(gpus=len(_core.gpus()))
with arraybridge.Broker(sys.argv[1], namespace="uploads", start="never") as made:
    globals()[sys.argv[2]](made)
print("done")
