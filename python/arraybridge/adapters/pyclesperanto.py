# SPDX-License-Identifier: Apache-2.0
"""pyclesperanto: images of rank 1 to 3 in the memory of its backend's device, and the prototype's OCLArray.

Other libraries cannot address OpenCL and Metal memory: arrays are uploaded and downloaded. The CUDA backend shares
memory (not tested on a GPU; tests replace it by a module with its dialect). Its own casts are silent, so it never gets
a dtype that it lacks.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from arraybridge import _core
from arraybridge.adapters import ensure_module, numpy as numpy_adapter
from arraybridge.arrays import devices
from arraybridge.arrays.devices import Device, OwnDevices
from arraybridge.errors import DeviceUnavailable
from arraybridge.planner import CODES, Caps, Description, dtype_refused

if TYPE_CHECKING:
    from arraybridge._core import View

DTYPES: Final = frozenset({"float32", "int8", "int16", "int32", "uint8", "uint16", "uint32"})
CAPS: Final = Caps(  # of the CUDA backend
    name="pyclesperanto",
    layout="compact_c",
    align_bytes=1,
    ndim_min=1,
    ndim_max=3,
    empty=False,
    read_only="dropped",
    private=False,
    dtypes=DTYPES,
    narrows={"float64": "float32", "int64": "int32", "uint64": "uint32"},
    way_out="cast it yourself",
    devices=frozenset({devices.CUDA}),
)
_TYPES: Final = {"CUDA": devices.CUDA, "OPENCL": devices.OPENCL, "METAL": devices.METAL}
_VENDORS: Final = Path("/etc/OpenCL/vendors")  # where the OpenCL loader finds its drivers
_remembered: dict[tuple[int, int, int], Caps] = {}
_selecting = threading.Lock()


def caps() -> Caps:
    """Raises:
    DeviceUnavailable: no backend has a device.
    """
    cle = _module()
    if _is_prototype(cle):
        return _caps_of(devices.OPENCL, 1, 0)
    device, count = cle.get_device(), len(cle.list_available_devices())
    if device is None or not count:
        reason = "pyclesperanto has no device here: neither CUDA nor OpenCL"
        raise DeviceUnavailable("array", "pyclesperanto", "device", reason)
    return _caps_of(_type_of(device), count, device.index)


def describe(array: Any) -> Description:
    name = str(array.dtype.name)
    if name not in CODES:
        raise dtype_refused("pyclesperanto", name, "convert it, for example with astype(float)")
    where = _where(array)
    foreign = where[0] == devices.CUDA
    return Description(
        framework="pyclesperanto",
        dtype=name,
        code=CODES[name],
        shape=tuple(array.shape),
        strides=None,
        address=_core.wrap(array).address if foreign else 0,
        read_only=False,
        device=where,
        obstacles=() if foreign else (f"no_foreign_memory: no other library can address {devices.named(where)}",),
        pull=None if foreign else lambda: _core.wrap(array.get()),
        fill=None if foreign else lambda destination: numpy_adapter.filler(array.get())(destination),
    )


def export(array: Any) -> View:
    # Reads one element to the host to wait for its in-order queue, because its export does not wait.
    array.get((0, 0, 0), (1, 1, 1))
    return _core.wrap(array)


def view(view: View) -> Any:
    """REQUIRES: memory of the CUDA backend's device."""
    return _module().from_dlpack(view.complete(), device=_device(view.device[1]))


def upload(view: View, device: Device) -> Any:
    """A private copy of host memory on one of its own devices."""
    source = numpy_adapter.view(view)
    cle = _module()
    if _is_prototype(cle):
        # Its push would convert every dtype to float32.
        return cle._tier0._pycl.OCLArray.from_array(source)
    return cle.push(source, device=_device(device[1]))


def _caps_of(type_: int, count: int, current: int) -> Caps:
    known = _remembered.get((type_, count, current))
    if known is not None:
        return known
    own = None if type_ == devices.CUDA else OwnDevices(type_, count, current)
    made = replace(CAPS, devices=frozenset({type_}), own=own)
    return _remembered.setdefault((type_, count, current), made)


def _where(array: Any) -> Device:
    if _is_prototype(sys.modules.get(type(array).__module__.partition(".")[0])):
        return devices.OPENCL, 0
    return _type_of(array.device), array.device.index


def _type_of(device: Any) -> int:
    return _TYPES[device.type.name.upper()]


def _device(number: int) -> Any:
    """Its device of this number. A device can only be named by selecting it, so the current one is selected again."""
    cle = _module()
    with _selecting:
        before = cle.get_device()
        if before.index == number:
            return before
        try:
            return cle.select_device(number)
        finally:
            cle.select_device(before.index)


def _is_prototype(module: Any) -> bool:
    return module is not None and module.__name__ == "pyclesperanto_prototype"


def _module() -> Any:
    if "pyclesperanto" not in sys.modules and "pyclesperanto_prototype" in sys.modules:
        return ensure_module("pyclesperanto_prototype")
    _bind_drivers()
    return ensure_module("pyclesperanto")


def _bind_drivers() -> None:
    """Makes PoCL bind its own LLVM. TensorFlow exports another LLVM; with it, PoCL's first device would end the
    process.
    """
    if "tensorflow" in sys.modules:
        _load_drivers()


@functools.cache
def _load_drivers() -> None:
    for vendor in sorted(_VENDORS.glob("*pocl*.icd")):
        with contextlib.suppress(OSError):
            ctypes.CDLL(vendor.read_text().strip(), mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)


def gpus() -> Sequence[int]:
    return range(len(_module().list_available_devices())) if devices.CUDA in caps().devices else ()


def uploaded(source: View, number: int) -> Any:
    on_host = source if source.device == devices.HOST else _core.copy_to_heap(source)
    return upload(on_host, (devices.CUDA, number))


def clean(number: int | None) -> None:
    """Does nothing: its allocator frees no memory while an array lives."""


def out_of_memory(error: BaseException) -> bool:
    texts = ("CL_MEM_OBJECT_ALLOCATION_FAILURE", "CL_OUT_OF_HOST_MEMORY", "CUDA_ERROR_OUT_OF_MEMORY")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
