"""JAX: immutable arrays, unversioned DLPack only, 64-byte alignment, and 64-bit types only with x64 on."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from arraybridge.adapters import ensure_module
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.errors import UnsupportedArray
from arraybridge.planner import COMMON, FLOAT8, Caps, Description

if TYPE_CHECKING:
    from arraybridge._core import View

CAPS: Final = Caps(
    name="jax",
    layout="compact_permutation",
    align_bytes=64,
    ndim_max=64,
    read_only="immutable",
    private=False,
    dtypes=COMMON | FLOAT8 | {"bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"},
)
CAPS_WITHOUT_X64: Final = replace(
    CAPS,
    narrows={"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"},
    way_out="set jax_enable_x64",
)


def caps() -> Caps:
    # Asked every time: it is a setting of the process, and `jax.enable_x64` of a thread.
    return CAPS if _jax().config.jax_enable_x64 else CAPS_WITHOUT_X64


def describe(array: Any) -> Description:
    _refuse_formless(array)
    return replace(numpy_adapter.describe(_alias(array)), framework="jax")


def export(array: Any) -> View:
    return numpy_adapter.export(_alias(array))


def view(view: View) -> Any:
    return _jax().dlpack.from_dlpack(view.for_immutable_consumer())


def _jax() -> Any:
    jax = sys.modules.get("jax")
    # A module is in sys.modules before it is complete; dlpack comes with it, and is a submodule to be sure.
    return jax if jax is not None and "jax.dlpack" in sys.modules else _import()


def _import() -> Any:
    jax = ensure_module("jax")
    ensure_module("jax.dlpack")
    return jax


def _alias(array: Any) -> Any:
    # The array's own read-only NumPy alias, which also has bfloat16 and float8 and waits until the value is there.
    return numpy_adapter.frozen(array.__array__())


def _refuse_formless(array: Any) -> None:
    jax = _jax()
    form = None
    if isinstance(array, jax.core.Tracer):
        form = "a tracer"
    elif jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        form = f"an array of {array.dtype}"
    elif array.is_deleted():
        form = "a deleted or donated array"
    elif len(array.sharding.device_set) > 1:
        form = "an array sharded over several devices (export the shards)"
    elif next(iter(array.sharding.device_set)).platform != "cpu":
        form = f"an array on {next(iter(array.sharding.device_set))}"
    if form is not None:
        raise UnsupportedArray("jax", "any", "hand_over", f"{form} has no host memory that can be handed on")
