# SPDX-License-Identifier: Apache-2.0
"""Numba's CUDA device arrays: only the CUDA array interface, version 3.

Their stream is the one that they were created with; numba.cuda.as_cuda_array waits for the View's. Numba copies and
indexes in the current context, where memory of another GPU may not be mapped: with several GPUs, arrays of this adapter
select their own context.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from arraybridge import _core
from arraybridge.adapters import ensure_module, generic
from arraybridge.arrays import devices
from arraybridge.planner import COMMON, Caps, Description

if TYPE_CHECKING:
    from arraybridge._core import View

CAPS: Final = Caps(
    name="numba",
    layout="strided",
    align_bytes=0,
    ndim_max=64,
    read_only="dropped",
    private=False,
    dtypes=COMMON,
    devices=frozenset({devices.CUDA}),
)
# The methods of Numba's arrays that copy, launch a kernel, or make an array of the same memory.
_ON_ITS_GPU: Final = (
    "__getitem__", "__setitem__", "bind", "copy_to_device", "copy_to_host", "get_ipc_handle", "getitem", "ravel", "reshape",
    "setitem", "squeeze", "transpose", "view",
)  # fmt: skip


def caps() -> Caps:
    _cuda()
    return CAPS


def describe(array: Any) -> Description:
    described = generic.described(export(array), "numba")
    if described.strides is None:
        return described
    # Only Numba itself can copy a strided array on a GPU.
    return replace(described, fill=_filler(array, described.device[1]))


def export(array: Any) -> View:
    interface = array.__cuda_array_interface__
    # Numba says None, which means complete, or 0 of an array of its default stream, on which kernels may still run.
    if not interface.get("stream"):
        interface = {**interface, "stream": devices.LEGACY_STREAM}
    return _core.wrap_cuda_array_interface(interface, array)


def plain(array: Any) -> Any:
    """Its array, compact, in memory of the same device."""
    with _cuda().gpus[export(array).device[1]]:
        made = _cuda().device_array(array.shape, array.dtype)
        made.copy_to_device(array)
        _cuda().synchronize()
        return made


def view(view: View) -> Any:
    cuda = _cuda()
    with cuda.gpus[view.device[1]]:
        made = cuda.as_cuda_array(view)
    if len(cuda.gpus) > 1:
        kind: Any = type(made)
        made.__class__ = _class_that_selects(kind)
    return made


@functools.cache
def _class_that_selects(kind: Any) -> type:
    """Numba's class, with the methods of _ON_ITS_GPU executed in the context of the array."""
    methods = {name: _selecting(getattr(kind, name)) for name in _ON_ITS_GPU if hasattr(kind, name)}
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, **methods})


def _selecting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def selected(array: Any, *args: Any, **kwargs: Any) -> Any:
        with _cuda().gpus[array.gpu_data.context.device.id]:
            result = method(array, *args, **kwargs)
        if type(result) is type(array).__base__:  # Numba names its own class, even if called through a subclass
            result.__class__ = type(array)
        return result

    return selected


@functools.cache
def _cuda() -> Any:
    # Imports once instead of reading sys.modules, where another thread's import may be incomplete.
    return ensure_module("numba.cuda")


def _filler(array: Any, number: int) -> Any:
    def fill(target: View) -> None:
        with _cuda().gpus[number]:
            view(target).copy_to_device(array)
            _cuda().synchronize()

    return fill
