"""TensorFlow: immutable tensors, unversioned capsules only, 64-byte alignment that it does not check itself."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from arraybridge.adapters import ensure_module
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.errors import UnsupportedArray, UnsupportedDtype
from arraybridge.planner import COMMON, FLOAT8, Caps, Description

if TYPE_CHECKING:
    from arraybridge._core import View

VERSION_MIN: Final = (2, 12)
CAPS: Final = Caps(
    name="tensorflow",
    layout="compact_c",
    align_bytes=64,
    ndim_max=64,
    read_only="immutable",
    private=False,
    dtypes=COMMON | {"bfloat16"},
    by_value=FLOAT8 - {"float8_e8m0fnu"},
)


def caps() -> Caps:
    if "tensorflow" not in sys.modules:
        _import()
    return CAPS


def describe(tensor: Any) -> Description:
    value = _value(tensor)
    _refuse_formless(value)
    return replace(numpy_adapter.describe(_alias(value)), framework="tensorflow", read_only=True)


def export(tensor: Any) -> View:
    return numpy_adapter.export(_alias(_value(tensor)))


def view(view: View) -> Any:
    tensorflow = sys.modules.get("tensorflow") or _import()
    if view.dtype in CAPS.by_value:
        return tensorflow.constant(numpy_adapter.view(view))
    return tensorflow.experimental.dlpack.from_dlpack(view.for_immutable_consumer().__dlpack__())


def _import() -> Any:
    return ensure_module("tensorflow", VERSION_MIN)


def _value(tensor: Any) -> Any:
    # A variable's value at this moment; a later assign writes to other memory, because this one is still held.
    return tensor.read_value() if isinstance(tensor, _import().Variable) else tensor


def _alias(tensor: Any) -> Any:
    # Zero-copy, unlike .numpy(). What the buffer protocol lacks (bfloat16, float8) comes as a writable alias.
    return numpy_adapter.frozen(memoryview(tensor) if tensor.dtype.name in COMMON else tensor.__array__())


def _refuse_formless(tensor: Any) -> None:
    tensorflow = _import()
    if tensorflow.is_symbolic_tensor(tensor):
        raise UnsupportedArray("tensorflow", "any", "hand_over", "a symbolic tensor has no memory that can be handed on")
    # Before anything touches the memory: a string tensor aborts the process in its own export.
    if tensor.dtype.name not in CAPS.dtypes and tensor.dtype.name not in CAPS.by_value:
        raise UnsupportedDtype(
            "tensorflow", "any", "hand_over", f"no framework can be handed TensorFlow's dtype {tensor.dtype.name}"
        )
    if not tensor.device.rpartition("device:")[2].startswith("CPU"):
        raise UnsupportedArray("tensorflow", "any", "hand_over", f"a tensor on {tensor.device} has no host memory")
