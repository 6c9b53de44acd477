# SPDX-License-Identifier: Apache-2.0
"""Host arrays on their way to the simulated GPU, beside the driver's own count: ``uploads_program.py ADDRESS NAME``."""

import ctypes
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from fakes import frameworks, gpu, own_copies
from internals import raw_core

import arraybridge
from arraybridge import _core, convert_memory
from arraybridge.conversion.memory import converted
from arraybridge.conversion.uploads import Uploads

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
    for target in ("torch", "cupy"):
        got, calls = counted(lambda target=target: convert_memory(values, "numpy", target, 0))
        assert got.on_gpu and (got.values() == values).all()
        assert calls["cuMemcpyHtoDAsync"] == 6 and calls["cuStreamSynchronize"] == 1, calls
        assert calls["cuMemHostAlloc"] == (2 if target == "torch" else 0), "the chunks are kept"
    got, calls = counted(lambda: broker.convert(values, "jax", device=0))
    assert (got.values() == values).all() and calls["cuMemcpyHtoDAsync"] == 6 and calls["cuMemHostAlloc"] == 0, calls


def a_tree_is_one_batch(broker: arraybridge.Broker) -> None:
    tree = {"layers": [np.full((10, number + 1), number, "f4") for number in range(50)], "last": (large(CHUNK), 3)}
    for target in ("torch", "jax", "tensorflow", "cupy"):
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


def a_tree_of_the_gpu_whose_arrays_are_strided_and_compact_is_put(broker: arraybridge.Broker) -> None:
    values = np.arange(12, dtype="f4").reshape(3, 4)
    for framework in ("torch", "cupy"):
        kind = frameworks.ARRAYS[framework]
        share = broker.put({"compact": kind.of(values), "strided": kind.of(values, (32, 8))})
        assert share.device == (2, 0)
        got = broker.get(share, framework)
        assert all((array.values() == values).all() for array in got.values()), framework


def several_arrays_of_convert_memory_are_one_batch(_: arraybridge.Broker) -> None:
    arrays = [np.full((3, number), number, "f8") for number in range(40)] + [np.arange(12.0).reshape(3, 4).T]

    def together() -> Any:
        uploads = Uploads()
        made = [converted(each, "numpy", "torch", 0, uploads=uploads) for each in arrays[:-1]]
        uploads.make()
        return made

    got, calls = counted(together)
    assert all((one.values() == other).all() for one, other in zip(got, arrays, strict=False))
    assert calls["cuStreamSynchronize"] == 1 and calls["cuMemcpyHtoDAsync"] == 39, calls
    strided = convert_memory(arrays[-1], "numpy", "torch", 0)
    assert strided.held.compact and (strided.values() == arrays[-1]).all()
    swapped = convert_memory(arrays[-1].astype(">f8"), "numpy", "cupy", 0)
    assert (swapped.values() == arrays[-1]).all()
    empty = convert_memory(np.zeros((0, 3), "f4"), "numpy", "torch", 0)
    assert empty.shape == (0, 3) and empty.on_gpu


def what_the_driver_refuses_is_a_conversion_error(broker: arraybridge.Broker) -> None:
    for call in (
        lambda: convert_memory(large(100), "numpy", "torch", 0),
        lambda: broker.convert([large(100)], "torch", device=0),
    ):
        try:
            call()
        except arraybridge.MemoryConversionError as error:
            assert error.method == "place" and error.source_type == "numpy", error
        else:
            raise AssertionError("it was not refused")


warnings.simplefilter("ignore")
gpu.start()
frameworks.install()
own_copies.install(gpus=len(_core.gpus()))
with arraybridge.Broker(sys.argv[1], namespace="uploads", start="never") as made:
    globals()[sys.argv[2]](made)
print("done")
