# SPDX-License-Identifier: Apache-2.0
"""Models that cannot follow a bundle, because something in them would keep weights of an earlier generation."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from arraybridge.adapters import ensure_module
from arraybridge.arrays import devices
from arraybridge.broker.bundle import Bundle
from arraybridge.errors import InvalidRequest

ONCE: Final = "attach each generation without follow="
# Modules whose classes pack weights into a form of their own.
_PACKING: Final = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized", "torch.utils.mkldnn", "torchao.")


def check_module(module: Any) -> None:
    """Raises:
    InvalidRequest: the arrays under this model cannot be exchanged.
    """
    torch: Any = ensure_module("torch")
    kind = type(module)
    if not isinstance(module, torch.nn.Module):
        others = "JAX and TensorFlow suppose that arrays do not change, and keep copies of them"
        way_out = f"{others}: use the arrays of each `bundle.wait_newer()` in their place"
        raise InvalidRequest(f"follow= takes a torch.nn.Module, not {kind.__module__}.{kind.__qualname__}; {way_out}")
    if isinstance(module, torch.jit.ScriptModule):
        way_out = "attach the module that it was made of with follow=, trace that, and call it inside `with follower.reading():`"
        raise InvalidRequest(f"{kind.__name__} holds copies of its tensors: {way_out}")
    for name, each in module.named_modules():
        if type(each).__module__.startswith(_PACKING):
            raise InvalidRequest(_packed(name, type(each).__qualname__))
    for name, tensor in _tensors(module):
        if tensor.is_quantized or tensor.layout != torch.strided or type(tensor).__module__.startswith(_PACKING):
            raise InvalidRequest(_packed(name, "a quantised or packed tensor"))
    check_freezing()


def check_freezing() -> None:
    """Raises:
    InvalidRequest: torch.compile would make the weights constants of its code.
    """
    inductor = sys.modules.get("torch._inductor.config")
    if inductor is not None and inductor.freezing:
        raise InvalidRequest(
            "torch._inductor.config.freezing is set, so compiled code keeps copies of weights that no swap reaches: set it to False,"
            f" or {ONCE} and compile again"
        )


def check_bundle(bundle: Bundle) -> None:
    """Raises:
    InvalidRequest: its arrays are read on another device than that of its memory.
    """
    if bundle.device != bundle.share.device:
        read, lies = devices.named(bundle.device), devices.named(bundle.share.device)
        raise InvalidRequest(f"bundle {bundle.share.name!r} lies on {lies} and is read on {read}: follow= takes it where it lies; {ONCE}")


def _tensors(module: Any) -> Iterator[tuple[str, Any]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _packed(name: str, what: str) -> str:
    return (
        f"{name or 'the module'!r} is {what}, whose weights are copies in another form: attach the module before it is quantised,"
        " and quantise it again in `follower.on_swap`"
    )
