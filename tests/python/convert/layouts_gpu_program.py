# SPDX-License-Identifier: Apache-2.0
"""Every layout of every dtype between all fakes of the frameworks on the simulated GPU: ``layouts_gpu_program.py ADDRESS``.

Value, dtype and shape are exact, the source keeps its bytes, and where a plan says zero-copy the address is the source's.
Prints how many conversions were done and how many refused.
"""

import sys
import warnings
from typing import Any

import ml_dtypes
import numpy as np
from fakes import frameworks, gpu

import arraybridge
from arraybridge.errors import DeviceUnavailable, UnsupportedArray, UnsupportedDtype

NAMES = ("numpy", *frameworks.ARRAYS)
DTYPES = (
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "complex64", "complex128", "bfloat16",
)  # fmt: skip
# Shape, strides and offset, in elements; None: compact.
LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...] | None, int]] = {
    "compact": ((3, 4), None, 0),
    "transposed": ((3, 4), (1, 3), 0),
    "stepped": ((3, 4), (8, 2), 0),
    "offset": ((3, 4), (4, 1), 5),
    "row of one": ((1, 4), (7, 1), 0),
    "reversed": ((3, 4), (4, -1), 3),
    "0-d": ((), None, 0),
    "empty": ((0, 4), None, 0),
}
# What arrays of a framework can look like.
LAID_OUT = {
    "tensorflow": {"compact", "0-d", "empty"},
    "pyclesperanto": {"compact"},
    "jax": {"compact", "transposed", "offset", "row of one", "0-d", "empty"},
    "torch": set(LAYOUTS) - {"reversed"},
}
OF_PYCLESPERANTO = {"float32", "int8", "int16", "int32", "uint8", "uint16", "uint32"}
WITH_BFLOAT16 = {"numpy", "cupy", "torch", "tensorflow", "jax"}
# Frameworks that share whatever has no negative stride, and those that share that, too.
ANY_STRIDES = {"torch", "cupy", "numba"}


def exists(framework: str, layout: str, dtype: str) -> bool:
    """Whether there is such an array."""
    if framework == "pyclesperanto" and dtype not in OF_PYCLESPERANTO:
        return False
    return layout in LAID_OUT.get(framework, LAYOUTS) and (dtype != "bfloat16" or framework in WITH_BFLOAT16)


def takes(target: str, layout: str, dtype: str) -> bool:
    if target == "pyclesperanto":
        return dtype in OF_PYCLESPERANTO and layout not in ("0-d", "empty")
    return dtype != "bfloat16" or target in WITH_BFLOAT16


def bits(values: Any) -> Any:
    return values.view("u2") if values.dtype == ml_dtypes.bfloat16 else values


def made(framework: str, values: Any, layout: str) -> Any:
    """An array of the framework with these values, lying as the layout says."""
    _, strides, offset = LAYOUTS[layout]
    item = values.dtype.itemsize
    in_bytes = None if strides is None else tuple(stride * item for stride in strides)
    if framework == "numpy":
        lying = np.zeros(4 * values.nbytes + 256, np.uint8)
        array = np.ndarray(values.shape, values.dtype, lying, offset * item, in_bytes)
        array[...] = values
        return array
    array = frameworks.ARRAYS[framework].of(bits(values), in_bytes, offset * item)
    if values.dtype == ml_dtypes.bfloat16:
        array.held = array.held.named("bfloat16", (4, 16, 1))
    return array


def seen(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return bits(array)
    if array.held.dtype_name == "bfloat16" and not array.on_gpu:
        return np.asarray(array.held.named("uint16", (1, 16, 1)))
    return array.values()


def dtype_of(array: Any) -> str:
    return array.dtype.name if isinstance(array, np.ndarray) else array.held.dtype_name


def address(array: Any) -> int:
    return array.ctypes.data if isinstance(array, np.ndarray) else array.address


def check(broker: arraybridge.Broker, source: str, target: str, layout: str, dtype: str, **wishes: Any) -> bool:
    """Whether it was converted; False: it was refused."""
    shape, _, _ = LAYOUTS[layout]
    values = (np.arange(int(np.prod(shape))) % 2 + np.arange(int(np.prod(shape)))).astype(dtype).reshape(shape)
    array = made(source, values, layout)
    said = source, target, layout, dtype, wishes
    try:
        got, plan = broker.convert(array, target, explain=True, **wishes)
    except (UnsupportedArray, UnsupportedDtype) as refusal:
        assert not takes(target, layout, dtype), (said, refusal)
        return False
    except DeviceUnavailable as refusal:
        assert wishes.get("device") == "cpu" and target in ("cupy", "pyclesperanto", "numba"), (said, refusal)
        return False
    assert takes(target, layout, dtype), said
    assert isinstance(got, np.ndarray if target == "numpy" else frameworks.ARRAYS[target]), said
    assert tuple(got.shape) == shape and dtype_of(got) == dtype, (said, got.shape, dtype_of(got))
    assert seen(got).tobytes() == bits(values).tobytes(), (said, seen(got), plan)
    assert seen(array).tobytes() == bits(values).tobytes(), said
    if values.size:
        assert (address(got) == address(array)) == plan.zero_copy, (said, plan)
    on_gpu = target != "numpy" and got.on_gpu
    assert not values.size or on_gpu == (plan.device != "cpu"), (said, plan)
    assert plan.zero_copy == (plan.copies == 0), (said, plan)
    if "copy" in wishes and values.size:
        assert not plan.zero_copy, (said, plan)
    elif "numpy" not in (source, target) and not wishes and values.size:
        compact = layout in ("compact", "row of one", "0-d") and target != "pyclesperanto"
        if compact or (layout != "reversed" and target in ANY_STRIDES):
            assert plan.zero_copy, (said, plan)
    return True


def main() -> None:
    warnings.simplefilter("ignore")
    gpu.start()
    frameworks.install()
    done = refused = combination = 0
    whole = sys.argv[2] == "whole"
    with arraybridge.Broker(sys.argv[1], namespace="layouts", start="never") as broker:
        for source in NAMES:
            for layout in LAYOUTS:
                for dtype in DTYPES:
                    if not exists(source, layout, dtype):
                        continue
                    for target in NAMES:
                        wishes: list[dict[str, Any]] = [{"device": "cpu"}, {"copy": True}]
                        wishes.append({"device": 0} if source == "numpy" and target != "numpy" else {})
                        combination += 1
                        for each in wishes if whole else [wishes[combination % len(wishes)]]:
                            converted = check(broker, source, target, layout, dtype, **each)
                            done += converted
                            refused += not converted
    print(done, refused)


main()
