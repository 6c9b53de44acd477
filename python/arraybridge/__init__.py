"""arraybridge: one array, many frameworks, one copy. The Python client of arraybridged.

    broker = arraybridge.Broker()
    broker.put(array, "frame")                   # in any process
    tensor = broker.get("frame", "torch")        # in any other

Importing this package imports no framework, not even NumPy.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from arraybridge.asdlpack import asdlpack
from arraybridge.detect import (
    CPU_MEMORY_TYPES,
    GPU_MEMORY_TYPES,
    MEMORY_TYPE_CUPY,
    MEMORY_TYPE_JAX,
    MEMORY_TYPE_NUMPY,
    MEMORY_TYPE_PYCLESPERANTO,
    MEMORY_TYPE_TENSORFLOW,
    MEMORY_TYPE_TORCH,
    SUPPORTED_MEMORY_TYPES,
    VALID_GPU_MEMORY_TYPES,
    VALID_MEMORY_TYPES,
    MemoryType,
    detect_memory_type,
)
from arraybridge.errors import (
    BrokerError,
    BrokerTimeout,
    BrokerUnavailable,
    CopyWarning,
    DeviceFallbackWarning,
    DeviceUnavailable,
    FrameworkNotAvailable,
    InvalidDevice,
    InvalidMemoryType,
    InvalidRequest,
    MemoryConversionError,
    OutOfMemory,
    PermissionDenied,
    ShareExists,
    ShareNotFound,
    SourceTypeMismatch,
    UnsupportedArray,
    UnsupportedDtype,
    ZeroCopyUnavailable,
)

if TYPE_CHECKING:
    from arraybridge._core import View
    from arraybridge.broker import Broker
    from arraybridge.planner import Converted, Plan
    from arraybridge.share import ArraySpec, Listed, Share

__all__ = [
    "CPU_MEMORY_TYPES",
    "GPU_MEMORY_TYPES",
    "MEMORY_TYPE_CUPY",
    "MEMORY_TYPE_JAX",
    "MEMORY_TYPE_NUMPY",
    "MEMORY_TYPE_PYCLESPERANTO",
    "MEMORY_TYPE_TENSORFLOW",
    "MEMORY_TYPE_TORCH",
    "SUPPORTED_MEMORY_TYPES",
    "VALID_GPU_MEMORY_TYPES",
    "VALID_MEMORY_TYPES",
    "ArraySpec",
    "Broker",
    "BrokerError",
    "BrokerTimeout",
    "BrokerUnavailable",
    "Converted",
    "CopyWarning",
    "DeviceFallbackWarning",
    "DeviceUnavailable",
    "FrameworkNotAvailable",
    "InvalidDevice",
    "InvalidMemoryType",
    "InvalidRequest",
    "Listed",
    "MemoryConversionError",
    "MemoryType",
    "OutOfMemory",
    "PermissionDenied",
    "Plan",
    "Share",
    "ShareExists",
    "ShareNotFound",
    "SourceTypeMismatch",
    "UnsupportedArray",
    "UnsupportedDtype",
    "View",
    "ZeroCopyUnavailable",
    "asdlpack",
    "detect_memory_type",
]

# What needs the extension is loaded when it is first asked for.
_HOMES = {
    "ArraySpec": "share",
    "Broker": "broker",
    "Converted": "planner",
    "Listed": "share",
    "Plan": "planner",
    "Share": "share",
    "View": "_core",
}

logging.getLogger("arraybridge").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'arraybridge' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"arraybridge.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
