# SPDX-License-Identifier: Apache-2.0
"""Test arrays of every installed framework, and the comparison of results with the originals."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

from arraybridge import _core, adapters
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.arrays import devices
from arraybridge.broker import Broker
from arraybridge.errors import DeviceUnavailable, FrameworkNotAvailable


def installed(only: Sequence[str] = ()) -> list[str]:
    """The frameworks, or those in `only`, that can be imported here and have a device."""
    return [name for name in only or adapters.NAMES if not missing(name)]


def missing(name: str) -> str:
    """Why this framework cannot have arrays here; "" if it can.

    Raises:
        InvalidMemoryType: there is no adapter of this name.
    """
    adapters.named(name)
    if importlib.util.find_spec(name) is None:
        return "not installed"
    try:
        caps = adapters.named(name).caps()
    except (FrameworkNotAvailable, DeviceUnavailable) as error:
        return error.reason  # pyclesperanto without OpenCL
    if caps.devices == {devices.CUDA} and not _core.gpus():
        return "its arrays lie on GPUs only, and this process sees none"
    return ""


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """A read-only ndarray of this shape with distinct values, at an address that every framework accepts."""
    np = numpy_adapter.module()
    size = math.prod(shape)
    view = _core.copy_to_heap(numpy_adapter.export((np.arange(size) % 251).astype(dtype).reshape(shape)))
    return numpy_adapter.frozen(numpy_adapter.view(view))


def made(broker: Broker, framework: str, values: Any) -> Any:
    """An array of the framework with these values, in memory of its own; writable if its arrays are."""
    if framework == "numpy":
        return numpy_adapter.view(_core.copy_to_heap(numpy_adapter.export(values)))
    return broker.convert(values, framework, copy=True)


def same(broker: Broker, array: Any, values: Any) -> bool:
    """True if the array has the dtype, the shape and every bit of `values`."""
    np = numpy_adapter.module()
    found = broker.convert(array, "numpy")
    return bool(found.dtype == values.dtype and found.shape == values.shape and np.array_equal(found, values))
