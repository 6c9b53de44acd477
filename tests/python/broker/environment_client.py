# SPDX-License-Identifier: Apache-2.0
"""A process of an environment with one framework: ``environment_client.py put|get FRAMEWORK ADDRESS ROUNDS SOURCES``.

No other framework is installed here, so nothing can come from it. Threads put, or get, in turns; every array holds one
number throughout, of which it says the hundreds by its rows, and a name's number only grows. Prints "ok".
"""

import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any

import arraybridge

FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax", "pyclesperanto", "pyarrow")
THREADS = 16
DTYPES = ("float32", "int16", "uint8")

verb, framework, address, rounds, sources = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5].split(",")
# This package needs NumPy.
others = set(FRAMEWORKS) - {framework, "numpy"}


def check_apart() -> None:
    """What is here, and from where."""
    found = [name for name in (*others, "pytest") if importlib.util.find_spec(name)]
    assert not found, f"{found} are not of this environment"
    for module in (arraybridge, sys.modules["arraybridge._core"], *map(sys.modules.get, (framework, "numpy"))):
        assert Path(module.__file__).is_relative_to(sys.prefix), module  # type: ignore[union-attr, arg-type]


def filled(whole: int, dtype: str) -> Any:
    rows, number = 1 + whole // 100, whole % 100
    shape = (rows, 5 + number % 3)
    if framework == "torch":
        import torch

        return torch.full(shape, number, dtype=getattr(torch, dtype))
    if framework == "tensorflow":
        import tensorflow as tf

        return tf.cast(tf.fill(shape, number), dtype)
    if framework == "jax":
        import jax.numpy as jnp

        return jnp.array([[number] * shape[1]] * shape[0], dtype=dtype)
    import numpy as np

    values = np.full(shape, number, dtype)
    if framework == "pyclesperanto":
        import pyclesperanto as cle

        return cle.push(values)
    if framework == "pyarrow":
        import pyarrow

        return pyarrow.Tensor.from_numpy(values)
    return values


HOST_VALUES = {"tensorflow": "numpy", "jax": "__array__", "pyclesperanto": "get", "pyarrow": "to_numpy"}


def on_host(array: Any) -> Any:
    """By the framework's own means: what has a shape, a dtype, and `tolist`."""
    return getattr(array, HOST_VALUES[framework])() if framework in HOST_VALUES else array


def put_some(broker: Any, thread: int) -> None:
    dtype = DTYPES[thread % len(DTYPES)]
    for number in range(1, rounds + 1):
        broker.put(filled(number, dtype), f"{framework}-{thread}", replace=True, metadata=str(number).encode())


def get_some(broker: Any, thread: int) -> None:
    dtype = DTYPES[thread % len(DTYPES)]
    uploaded = framework == "pyclesperanto"  # over OpenCL nobody shares anything with it
    for source in sources:
        latest = 0
        for _ in range(rounds):
            array, plan = broker.get(f"{source}-{thread}", framework, wait=600, explain=True)
            assert plan.zero_copy != uploaded and plan.copies == uploaded, plan
            # PyArrow is no memory type.
            assert (arraybridge.detect_memory_type(array) or type(array).__module__.partition(".")[0]) == framework
            values = on_host(array)
            found = values.reshape(-1).tolist()
            rows = int(array.shape[0])
            assert len(set(found)) == 1 and len(found) == rows * (5 + int(found[0]) % 3), (source, found)
            assert dtype in str(values.dtype) and tuple(array.shape) == (rows, len(found) // rows)
            number = 100 * (rows - 1) + int(found[0])
            assert latest <= number <= rounds, (source, latest, number)
            latest = number


def main() -> None:
    failures: list[str] = []
    with arraybridge.Broker(address, namespace="apart", start="never", timeout_s=600) as broker:
        work = put_some if verb == "put" else get_some

        def guarded(thread: int) -> None:
            try:
                work(broker, thread)
            except BaseException as error:
                failures.append(f"{verb} {framework} {thread}: {type(error).__name__}: {error}")

        threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise SystemExit("\n".join(failures))
        check_apart()
        print("ok", flush=True)
        sys.stdin.read()  # what it put stays until its readers have done


main()
