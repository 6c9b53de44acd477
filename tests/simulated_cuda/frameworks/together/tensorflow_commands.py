# SPDX-License-Identifier: Apache-2.0
"""What share_program.py does with real TensorFlow. Its own kernels are machine code, which the simulated driver does not
run; it interprets those that XLA compiles.
"""

import asyncio
import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import torch
from shares import view_of

import arraybridge

COUNT = 1000
driver = ctypes.CDLL("libcuda.so.1")
driver.simulated_cuda_counter.restype = ctypes.c_long
next_one = tf.function(lambda array: array + 1, jit_compile=True)
KERNELS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + 1,
    "fused": lambda x: (x * x - 2 * x) / 3,
    "sum": lambda x: tf.reduce_sum(x, axis=1) if isinstance(x, tf.Tensor) else x.sum(axis=1),
}


def expected(start: str) -> np.ndarray:
    return np.arange(int(start), int(start) + COUNT, dtype="f4")


def on_gpu(values: np.ndarray) -> tf.Tensor:
    with tf.device("GPU:0"):
        return tf.constant(values)


def later_by_one(values: np.ndarray) -> tf.Tensor:
    """An array whose kernel runs after half a second, or when a call of the driver waits for it."""
    one = on_gpu(values)
    with tf.device("GPU:0"):
        next_one(one).numpy()  # compiled
        driver.simulated_cuda_pause(500)
        done = driver.simulated_cuda_counter(b"kernels_done")
        array = next_one(one)
    assert driver.simulated_cuda_counter(b"kernels_done") == done
    return array


def address(array: tf.Tensor) -> int:
    return torch.from_dlpack(tf.experimental.dlpack.to_dlpack(array)).data_ptr()


def right(array: Any, start: str) -> str:
    values = array.numpy() if isinstance(array, tf.Tensor) else np.asarray(array)
    return "right" if (values == expected(start)).all() else f"wrong: {values.ravel()[:3].tolist()}"


def tf_compute() -> str:
    """Kernels of XLA: the results are those of NumPy."""
    host = np.linspace(0.1, 2, 600, dtype="f4").reshape(20, 30)
    array = on_gpu(host)
    for name, of in KERNELS.items():
        compiled = tf.function(of, jit_compile=True)
        with tf.device("GPU:0"):
            there = compiled(array)
        assert "GPU:0" in there.device
        np.testing.assert_allclose(there.numpy(), of(host), rtol=1e-5, err_msg=name)
    return "right"


def functions(broker: arraybridge.Broker) -> dict[str, Callable[..., str]]:
    kept: list[object] = []

    def tf_put(name: str, start: str) -> str:
        share = broker.put(on_gpu(expected(start)), name)
        return f"{share.device} {share.kind}"

    def tf_get(name: str, start: str) -> str:
        array, plan = broker.get(name, "tensorflow", explain=True)
        assert "GPU:0" in array.device
        assert address(array) == view_of(broker, name).address
        kept.append(array)
        return f"{plan.via} {plan.copies} {right(array, start)}"

    def tf_put_pending(name: str, start: str, verb: str) -> str:
        array = later_by_one(expected(start) - 1)
        if verb == "put":
            broker.put(array, name)
        elif verb == "unwaited":
            broker.put(array, name, wait=False)
        elif verb == "send":
            broker.channel(name).send(array)
        else:
            asyncio.run(broker.channel(name).asend(array))
        broker.flush()
        return "ok"

    def tf_convert_pending(start: str) -> str:
        told = []
        for target in ("torch", "numpy"):
            converted = broker.convert(later_by_one(expected(start) - 1), target)
            told.append(right(converted.cpu() if target == "torch" else converted, start))
        return " ".join(told)

    def tf_received(name: str, start: str) -> str:
        return right(broker.channel(name).receive("tensorflow", timeout=60), start)

    def tf_variable(name: str, start: str) -> str:
        """The share has the variable's value of that moment."""
        with tf.device("GPU:0"):
            variable = tf.Variable(expected(start))
        share = broker.put(variable, name)
        variable.assign(on_gpu(expected("0")))
        return f"{share.device} {right(broker.get(name, 'tensorflow'), start)}"

    def tf_integers(name: str) -> str:
        """TensorFlow keeps int32 in host memory, and int64 on the GPU."""
        told = []
        for dtype in ("i4", "i8", "u1", "f2"):
            values = expected("0").astype(dtype)
            share = broker.put(on_gpu(values), f"{name}-{dtype}")
            told.append(str(share.device))
            assert (broker.get(share, "numpy") == values).all()
        return " ".join(told)

    def tf_convert(start: str) -> str:
        """From the host and back, and to a copy that shares nothing; test_matrix.py has all pairs."""
        to_gpu, plan = broker.convert(expected(start), "tensorflow", device="cuda:0", explain=True)
        told = [f"{plan.via} {right(to_gpu, start)} {to_gpu.device.rpartition('device:')[2]}"]
        to_host, plan = broker.convert(to_gpu, "numpy", explain=True)
        told.append(f"{plan.via} {right(to_host, start)}")
        private, plan = broker.convert(to_gpu, "tensorflow", copy=True, explain=True)
        assert address(private) != address(to_gpu)
        return ", ".join([*told, f"{plan.via} {right(private, start)}"])

    return {
        each.__name__: each
        for each in (tf_compute, tf_put, tf_get, tf_put_pending, tf_convert_pending, tf_received, tf_variable, tf_integers, tf_convert)
    }
