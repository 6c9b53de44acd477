# SPDX-License-Identifier: Apache-2.0
"""One side of a hand-over, with one framework: `pair_client.py put|get FRAMEWORK ADDRESS SOURCES`. Prints one JSON line.

Values are made and compared as Python lists or raw bytes by each framework's own means, so neither side needs NumPy's
word for the other's.
"""

import json
import sys
from typing import Any

import arraybridge

SHAPES = [(3, 5), (), (0, 4), (2, 3, 4)]
WIDE = ["int64", "uint64", "float64", "complex128"]
DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32", "complex64", *WIDE]
SOURCES = sys.argv[4].split(",")
BIG = 1 << 18  # float32: 1 MiB


def values(dtype: str, count: int) -> list[Any]:
    if dtype == "bool":
        return [index % 3 == 0 for index in range(count)]
    if dtype in ("int64", "uint64"):
        return [2**53 + 1 + index for index in range(count)]
    if dtype == "complex64" or dtype == "complex128":
        return [complex(index, -0.5) for index in range(count)]
    return list(range(count))


def count_of(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def make_numpy(dtype, shape):
    import numpy as np

    return np.array(values(dtype, count_of(shape)), dtype).reshape(shape)


def make_torch(dtype, shape):
    import torch

    return torch.tensor(values(dtype, count_of(shape)), dtype=getattr(torch, dtype)).reshape(shape)


def make_tensorflow(dtype, shape):
    import tensorflow as tf

    return tf.reshape(tf.constant(values(dtype, count_of(shape)), dtype=getattr(tf, dtype)), shape)


def make_jax(dtype, shape):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    return jnp.array(values(dtype, count_of(shape)), dtype=dtype).reshape(shape)


def flat(framework: str, array: Any) -> list[Any]:
    if framework == "tensorflow":
        return array.numpy().reshape(-1).tolist()
    if framework == "jax":
        return array.__array__().reshape(-1).tolist()  # its own reshape compiles, for every shape and dtype
    return array.reshape(-1).tolist()


def pointer(framework: str, array: Any) -> int:
    if framework == "torch":
        return array.data_ptr()
    if framework == "jax":
        return array.unsafe_buffer_pointer()
    if framework == "tensorflow":
        return array.__array__().__array_interface__["data"][0]
    return array.__array_interface__["data"][0]


def put(framework: str, broker: arraybridge.Broker) -> dict[str, Any]:
    make = globals()[f"make_{framework}"]
    for dtype in DTYPES:
        broker.put({str(shape): make(dtype, shape) for shape in SHAPES}, f"{framework}-{dtype}")
    broker.put(make("float32", (BIG,)), f"{framework}-big")
    return {"put": framework}


def get(framework: str, broker: arraybridge.Broker) -> dict[str, Any]:
    if framework == "jax":
        import jax

        jax.config.update("jax_enable_x64", True)
    return {source: problems(framework, source, broker) for source in SOURCES}


def problems(framework: str, source: str, broker: arraybridge.Broker) -> list[str]:
    found = []
    for dtype in DTYPES:
        tree, plan = broker.get(f"{source}-{dtype}", framework, wait=60, explain=True)
        if not plan.zero_copy:
            found.append(f"{dtype}: copied, {plan.reasons}")
        for shape in SHAPES:
            array = tree[str(shape)]
            if arraybridge.detect_memory_type(array) != framework:
                found.append(f"{dtype} {shape}: a {type(array)}")
            if dtype not in str(array.dtype) or tuple(array.shape) != shape:
                found.append(f"{dtype} {shape}: {array.dtype} {array.shape}")
            if flat(framework, array) != values(dtype, count_of(shape)):
                found.append(f"{dtype} {shape}: other values")
    first, second = (broker.get(f"{source}-big", framework) for _ in range(2))
    one, two = pointer(framework, first), pointer(framework, second)
    # One mapping for all that know read-only; one each, of the same pages until a write, for torch.
    if one % 256 or (one == two) != (framework != "torch"):
        found.append(f"pointers {one:x} {two:x}")
    return found


def main() -> None:
    verb, framework, address = sys.argv[1:4]
    with arraybridge.Broker(address, namespace="pairs", start="never") as broker:
        report = globals()[verb](framework, broker)
    report["imported"] = [name for name in ("numpy", "torch", "tensorflow", "jax") if name in sys.modules]
    print(json.dumps(report))


main()
