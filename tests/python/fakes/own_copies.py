"""What the fakes of frameworks.py do by themselves on the simulated GPU: upload, copy, stack. `install()` adds it to them."""

import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from fakes import frameworks
from fakes.gpu import Held


def uploaded(kind: type[Held]) -> Any:
    """A function that makes an array of this class on the GPU, of host values or of another fake's."""

    def upload(values: Any, *_: Any, **__: Any) -> Any:
        made = values.values() if isinstance(values, Held) else np.asarray(values)
        return kind.of(np.ascontiguousarray(made).reshape(made.shape))

    return upload


def stacked(kind: type[Held]) -> Any:
    return lambda arrays: kind.of(np.stack([each.values() for each in arrays]))


class TorchTensor(frameworks.TorchTensor):
    """With the copies that the real class makes of itself."""

    def to(self, device: str, *, copy: bool) -> Any:
        assert copy and device == "cuda:0"
        return uploaded(type(self))(self)

    def contiguous(self) -> Any:
        return uploaded(type(self))(self)

    def resolve_conj(self) -> Any:
        return self

    resolve_neg = resolve_conj


def install() -> None:
    """REQUIRES: frameworks.install()."""
    cupy, torch, tensorflow, jax, cle = (
        sys.modules[name] for name in ("cupy", "torch", "tensorflow", "jax", "pyclesperanto")
    )
    add: Any = SimpleNamespace  # the modules are plain objects here
    cupy.__dict__.update(
        asarray=uploaded(frameworks.CupyArray), array=uploaded(frameworks.CupyArray), stack=stacked(frameworks.CupyArray),
        ascontiguousarray=uploaded(frameworks.CupyArray),
    )  # fmt: skip
    cupy.__dict__["cuda"].runtime = add(getDeviceCount=lambda: 1)

    frameworks.TorchTensor = frameworks.ARRAYS["torch"] = TorchTensor  # type: ignore[misc]
    torch.__dict__.update(Tensor=TorchTensor, stack=stacked(TorchTensor))
    torch.__dict__["cuda"].__dict__.update(is_available=lambda: True, device_count=lambda: 1)

    @contextmanager
    def device(name: str) -> Any:
        assert name == "GPU:0"
        yield

    tensorflow.__dict__.update(
        device=device, constant=uploaded(frameworks.TfTensor), stack=stacked(frameworks.TfTensor),
        raw_ops=add(DeepCopy=lambda x: uploaded(frameworks.TfTensor)(x)),
    )  # fmt: skip

    def put(values: Any, device: Any) -> Any:
        assert device.local_hardware_id == 0
        made = uploaded(frameworks.JaxArray)(values)
        made.block_until_ready = lambda: made
        return made

    jax.__dict__.update(
        device_put=put, local_devices=lambda backend: [add(local_hardware_id=0)],
        numpy=add(array=uploaded(frameworks.JaxArray), stack=stacked(frameworks.JaxArray)),
    )  # fmt: skip
    cle.__dict__["push"] = uploaded(frameworks.CleArray)
