"""A process of an environment with one framework: ``apart_client.py put|get FRAMEWORK ADDRESS ROUNDS``.

No other framework is installed here, so nothing can come from it. Threads put, or get, in turns; every array holds one
number throughout, of which it says the hundreds by its rows, and a name's number only grows. Prints "ok".
"""

import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any

import arraybridge

FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax")
THREADS = 16
DTYPES = ("float32", "int16", "uint8")

verb, framework, address, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
# This package needs NumPy.
others = set(FRAMEWORKS) - {framework, "numpy"}


def check_apart() -> None:
    """What is here, and from where."""
    found = [name for name in (*others, "pyclesperanto", "pyarrow", "pytest") if importlib.util.find_spec(name)]
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

    return np.full(shape, number, dtype)


def numbers(array: Any) -> list[Any]:
    if framework == "tensorflow":
        return array.numpy().reshape(-1).tolist()
    if framework == "jax":
        return array.__array__().reshape(-1).tolist()
    return array.reshape(-1).tolist()


def put_some(broker: Any, thread: int) -> None:
    dtype = DTYPES[thread % len(DTYPES)]
    for number in range(1, rounds + 1):
        broker.put(filled(number, dtype), f"{framework}-{thread}", replace=True, metadata=str(number).encode())


def get_some(broker: Any, thread: int) -> None:
    dtype = DTYPES[thread % len(DTYPES)]
    for source in FRAMEWORKS:
        latest = 0
        for _ in range(rounds):
            array, plan = broker.get(f"{source}-{thread}", framework, wait=100, explain=True)
            assert plan.zero_copy, plan
            found = numbers(array)
            rows = int(array.shape[0])
            assert len(set(found)) == 1 and len(found) == rows * (5 + int(found[0]) % 3), (source, found)
            assert arraybridge.detect_memory_type(array) == framework
            assert dtype in str(array.dtype) and tuple(array.shape) == (rows, len(found) // rows)
            number = 100 * (rows - 1) + int(found[0])
            assert latest <= number <= rounds, (source, latest, number)
            latest = number


def main() -> None:
    failures: list[str] = []
    with arraybridge.Broker(address, namespace="apart", start="never", timeout_s=100) as broker:
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
