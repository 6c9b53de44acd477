# SPDX-License-Identifier: Apache-2.0
"""What the fakes of frameworks.py do by themselves on the simulated GPU: upload, copy, stack. `install()` adds it to them."""

import sys
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from arraybridge.planner import COMMON
from fakes import frameworks, gpu
from fakes.gpu import Held


def uploaded(kind: type[Held], number: Callable[[], int] = lambda: 0) -> Any:
    """A function that makes an array of this class on that GPU, of host values or of another fake's."""

    def upload(values: Any, *_: Any, **__: Any) -> Any:
        made = values.values() if isinstance(values, Held) else np.asarray(values)
        before = gpu.current()
        gpu.enter(number())
        try:
            return kind.of(np.ascontiguousarray(made).reshape(made.shape))
        finally:
            gpu.enter(before)

    return upload


def empty(kind: type[Held], shape: Any, dtype: Any, number: int) -> Any:
    """An array of this class on that GPU, whose content nobody has set."""
    return uploaded(kind, lambda: number)(np.full(shape, 77).astype(dtype))


def stacked(kind: type[Held], number: Callable[[], int] | None = None) -> Any:
    """A function that stacks arrays of this class, on that GPU or where the first of them is."""

    def stack(arrays: Any) -> Any:
        there = number or (lambda: int(arrays[0].held.device[1]))
        return uploaded(kind, there)(np.stack([each.values() for each in arrays]))

    return stack


class TorchTensor(frameworks.TorchTensor):
    """With the copies that the real class makes of itself."""

    def to(self, device: str, *, copy: bool) -> Any:
        kind, _, number = device.partition(":")
        assert copy and kind == "cuda"
        return uploaded(type(self), lambda: int(number))(self)

    def contiguous(self) -> Any:
        return uploaded(type(self), lambda: int(self.held.device[1]))(self)

    def resolve_conj(self) -> Any:
        return self

    resolve_neg = resolve_conj


def install(gpus: int = 1) -> None:
    """REQUIRES: frameworks.install(), and so many GPUs."""
    cupy, torch, tensorflow, jax, cle = (sys.modules[name] for name in ("cupy", "torch", "tensorflow", "jax", "pyclesperanto"))
    add: Any = SimpleNamespace  # the modules are plain objects here
    chosen = [0]  # TensorFlow's, by CUDA's number
    of_cupy = uploaded(frameworks.CupyArray, lambda: cupy.__dict__["current"])
    of_tensorflow = uploaded(frameworks.TfTensor, lambda: chosen[0])
    cupy.__dict__.update(
        asarray=of_cupy, array=of_cupy, ascontiguousarray=of_cupy, stack=stacked(frameworks.CupyArray),
        empty=lambda shape, dtype: empty(frameworks.CupyArray, shape, dtype, cupy.__dict__["current"]),
    )  # fmt: skip
    cupy.__dict__["cuda"].runtime = add(getDeviceCount=lambda: gpus, memcpyPeerAsync=gpu.copy_to_peer)

    frameworks.TorchTensor = frameworks.ARRAYS["torch"] = TorchTensor  # type: ignore[misc]
    torch.__dict__.update(
        Tensor=TorchTensor, stack=stacked(TorchTensor), **{name: name for name in COMMON},
        empty=lambda shape, dtype, device: empty(TorchTensor, shape, dtype, int(device.removeprefix("cuda:"))),
    )  # fmt: skip
    torch.__dict__["cuda"].__dict__.update(is_available=lambda: True, device_count=lambda: gpus)

    @contextmanager
    def device(name: str) -> Any:
        before, chosen[0] = chosen[0], int(name.removeprefix("GPU:"))
        yield
        chosen[0] = before

    tensorflow.__dict__["gpus"][:] = [frameworks.physical(number) for number in range(gpus)]
    tensorflow.__dict__.update(
        device=device, constant=of_tensorflow, stack=stacked(frameworks.TfTensor, lambda: chosen[0]),
        raw_ops=add(DeepCopy=lambda x: of_tensorflow(x)),
    )  # fmt: skip

    def put(values: Any, device: Any) -> Any:
        made = uploaded(frameworks.JaxArray, lambda: device.local_hardware_id)(values)
        made.block_until_ready = lambda: made
        return made

    jax.__dict__.update(
        device_put=put,
        local_devices=lambda backend: [add(platform="gpu", local_hardware_id=number) for number in range(gpus)],
        numpy=add(array=uploaded(frameworks.JaxArray), stack=stacked(frameworks.JaxArray)),
    )  # fmt: skip
    cle.__dict__["push"] = uploaded(frameworks.CleArray)
