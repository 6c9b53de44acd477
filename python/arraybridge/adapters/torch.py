"""PyTorch: ignores read-only, so a host share comes to it copy-on-write; a negative stride aborts the process.

On a GPU its tensors come after what its current stream has to do, and go to that stream.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from arraybridge import _core, devices
from arraybridge.adapters import ensure_module
from arraybridge.errors import UnsupportedArray, UnsupportedDtype
from arraybridge.planner import CODES, COMMON, FLOAT8, Caps, Description

if TYPE_CHECKING:
    from arraybridge._core import View

CAPS: Final = Caps(
    name="torch",
    layout="nonnegative",
    align_bytes=0,
    ndim_max=64,
    read_only="dropped",
    private=True,
    dtypes=COMMON | FLOAT8 | {"bfloat16", "complex32"},
    devices=frozenset({devices.CPU, devices.CUDA}),
)


def caps() -> Caps:
    return CAPS


def describe(tensor: Any) -> Description:
    _refuse_formless(tensor)
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in CODES:
        raise UnsupportedDtype("torch", "any", "hand_over", f"no framework can be handed torch.{name}")
    obstacles: tuple[str, ...] = ()
    if tensor.is_conj() or tensor.is_neg():
        obstacles = ("layout: a pending conjugate or negative bit",)
    elif tensor.is_cuda and not tensor.is_contiguous():
        obstacles = ("layout: strided on a GPU",)
    return Description(
        framework="torch",
        dtype=name,
        code=CODES[name],
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        address=tensor.data_ptr(),
        read_only=False,
        obstacles=obstacles,
        notes=("detached: the result has no gradient",) if tensor.requires_grad else (),
        fill=_filler(tensor) if obstacles else None,
        device=(devices.CUDA, tensor.device.index) if tensor.is_cuda else devices.HOST,
    )


def export(tensor: Any) -> View:
    return _core.wrap(tensor.detach())


def view(view: View) -> Any:
    return _from_dlpack()(view)


def _from_dlpack() -> Any:
    torch = sys.modules.get("torch") or ensure_module("torch")
    return torch.from_dlpack


def _filler(tensor: Any) -> Any:
    def fill(target: View) -> None:
        view(target).copy_(tensor.detach())
        if tensor.is_cuda:
            # Whoever is told of the bytes next asks nobody whether they are there.
            ensure_module("torch").cuda.current_stream(tensor.device).synchronize()

    return fill


def _refuse_formless(tensor: Any) -> None:
    torch = ensure_module("torch")
    form = None
    if tensor.is_nested:
        form = "a nested tensor"
    elif tensor.layout != torch.strided:
        form = f"a sparse tensor ({tensor.layout})"
    elif tensor.is_quantized:
        form = "a quantized tensor"
    elif tensor.is_meta:
        form = "a meta tensor"
    elif torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        form = "a tensor inside a functorch transform"
    elif _is_fake(tensor):
        form = "a fake tensor"
    elif tensor.device.type not in ("cpu", "cuda"):
        form = f"a tensor on {tensor.device}"
    if form is not None:
        raise UnsupportedArray("torch", "any", "hand_over", f"{form} has no memory that can be handed on")


def _is_fake(tensor: Any) -> bool:
    # Looked up, not imported: who has a fake tensor has imported its module.
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(tensor, module.FakeTensor)
