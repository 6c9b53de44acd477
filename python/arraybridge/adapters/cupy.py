"""CuPy: arrays on a GPU alone, any strides, no notion of read-only. They come after what its current stream has to do.

Not run with CuPy itself yet, which cannot load the simulated driver; tests put a module of its interface in its place.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from arraybridge import _core, devices
from arraybridge.adapters import ensure_module
from arraybridge.errors import UnsupportedDtype
from arraybridge.planner import CODES, COMMON, Caps, Description

if TYPE_CHECKING:
    from arraybridge._core import View

VERSION_MIN: Final = (13, 0)
CAPS: Final = Caps(
    name="cupy",
    layout="strided",
    align_bytes=0,
    ndim_max=64,
    read_only="dropped",
    private=False,
    dtypes=COMMON,
    devices=frozenset({devices.CUDA}),
)


def caps() -> Caps:
    _cupy()
    return CAPS


def describe(array: Any) -> Description:
    name = array.dtype.name
    if name not in CODES:
        raise UnsupportedDtype("cupy", "any", "hand_over", f"no framework can be handed CuPy's dtype {name}")
    itemsize = array.dtype.itemsize
    strided = not array.flags.c_contiguous
    return Description(
        framework="cupy",
        dtype=name,
        code=CODES[name],
        shape=tuple(array.shape),
        strides=tuple(stride // itemsize for stride in array.strides),
        address=array.data.ptr,
        read_only=False,
        device=(devices.CUDA, array.device.id),
        # Only CuPy itself copies what is strided on a GPU.
        obstacles=("layout: strided on a GPU",) if strided else (),
        fill=_filler(array) if strided else None,
    )


def export(array: Any) -> View:
    # Told the legacy stream, CuPy orders its current one before it.
    with _cupy().cuda.Device(array.device.id):
        return _core.wrap(array)


def view(view: View) -> Any:
    cupy = _cupy()
    with cupy.cuda.Device(view.device[1]):
        return cupy.from_dlpack(view)


def _cupy() -> Any:
    return sys.modules.get("cupy") or ensure_module("cupy", VERSION_MIN)


def _filler(array: Any) -> Any:
    def fill(target: View) -> None:
        cupy = _cupy()
        with cupy.cuda.Device(array.device.id):
            cupy.copyto(view(target), array)
            # Whoever is told of the bytes next asks nobody whether they are there.
            cupy.cuda.get_current_stream().synchronize()

    return fill
