"""Numba's CUDA device arrays: the CUDA array interface, version 3, and nothing else.

Their stream is the one that they were made with; numba.cuda.as_cuda_array waits for the View's.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from arraybridge import _core, devices
from arraybridge.adapters import ensure_module, generic
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


def caps() -> Caps:
    _cuda()
    return CAPS


def describe(array: Any) -> Description:
    described = generic.described(export(array), "numba")
    if described.strides is None:
        return described
    # Only Numba itself copies what is strided on a GPU.
    return replace(described, fill=_filler(array))


def export(array: Any) -> View:
    return _core.wrap_cuda_array_interface(array.__cuda_array_interface__, array)


def plain(array: Any) -> Any:
    """Its array without gaps, in memory of the same device."""
    made = _cuda().device_array(array.shape, array.dtype)
    made.copy_to_device(array)
    _cuda().synchronize()
    return made


def view(view: View) -> Any:
    return _cuda().as_cuda_array(view)


@functools.cache
def _cuda() -> Any:
    # Once, by import: what is in sys.modules may still be on its way in, in another thread.
    return ensure_module("numba.cuda")


def _filler(array: Any) -> Any:
    def fill(target: View) -> None:
        view(target).copy_to_device(array)
        _cuda().synchronize()

    return fill
