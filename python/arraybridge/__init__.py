# SPDX-License-Identifier: Apache-2.0
"""arraybridge: one array, many frameworks, one copy. The Python client of arraybridged.

    broker = arraybridge.Broker()
    broker.put(array, "frame")                   # in any process
    tensor = broker.get("frame", "torch")        # in any other
    tensor = arraybridge.convert(array, "torch") # inside one process, without a broker

Importing this package imports no framework, not even NumPy.

`help(arraybridge.Broker)`, and so on, has the arguments, the errors and examples.

Arrays in several processes:

    Broker               put, get, empty, list, withdraw, flush: arrays by name; channel, bundle, open, watch
    Share                what put returns: name, generation, shape, dtype, device; a consumer of DLPack reads it
    Channel              send and receive: a bounded queue, a broadcast, or the newest array
    Watch, Event         what happens in the broker: publishes, reads, withdrawals, sessions
    Bundle               one share of many named arrays, such as a model's weights; BundleWriter writes one
    Table                what get returns for a pandas, polars, Arrow or DuckDB table: columns as arrays of any framework
    load, save           files of safetensors, .npz and torch as a Bundle, and back

Arrays in one process:

    convert              an array, or a tree of arrays, as another framework's
    convert_memory       the same, of stated types, on a GPU by default
    Plan                 what was copied, and why: explain=True of get and convert returns it
    asdlpack, View       any array for every from_dlpack
    numpy, torch, ...    decorators: a function gets its own framework's arrays
    to_bytes, from_bytes an array as bytes of safetensors
    stack_slices, unstack_slices, process_slices, scale_dtype

When something fails:

    BrokerError          the base of all errors; each is also the builtin that one expects
    ShareNotFound, BrokerTimeout, OutOfMemory, PeerGone, ZeroCopyUnavailable, UnsupportedArray, ...
    conversion_counts, metrics      what this process has converted and copied

`arraybridge.multiprocessing`, `arraybridge.data`, `arraybridge.recording` and `arraybridge.integrations` have the functions for
pools, torch, files of channels, Ray, Dask, vLLM and notebooks. `dir(arraybridge)` has all names; the reference among the documents has them by topic. The other modules
of the package are not for users.
"""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from arraybridge import _conflict
from arraybridge.asdlpack import asdlpack
from arraybridge.detect import *
from arraybridge.errors import *

if TYPE_CHECKING:
    from arraybridge._core import View, __version__ as __version__
    from arraybridge.adapters import (
        ensure_module,
        get_device_id,
        optional_import,
        supports_cuda_array_interface,
        supports_dlpack,
    )
    from arraybridge.array_api import array_namespace
    from arraybridge.broker import Broker
    from arraybridge.broker.born.block import Born
    from arraybridge.broker.bundle import Bundle, BundleSpec, BundleWriter
    from arraybridge.broker.channel import Channel, Received, Sender
    from arraybridge.broker.patterns.calls import CallCancelled
    from arraybridge.broker.patterns.order import Gap, reorder
    from arraybridge.broker.patterns.receiver import Late
    from arraybridge.broker.patterns.selection import select
    from arraybridge.broker.services import Request, RequestFailed, ServerGone, Service
    from arraybridge.broker.share import ArraySpec, Got, Outcome, Share
    from arraybridge.broker.watch import Event, Watch
    from arraybridge.compat.cleanup import *
    from arraybridge.compat.scaling import SCALING_FUNCTIONS, scale_dtype
    from arraybridge.compat.stacking import process_slices, stack_slices, unstack_slices
    from arraybridge.conversion import convert, convert_memory
    from arraybridge.conversion.records import Record
    from arraybridge.counts import ConversionCount, Metric, conversion_counts, metrics
    from arraybridge.decorators import (
        DtypeConversion,
        cupy as cupy,
        jax as jax,
        memory_types,
        numpy as numpy,
        pyclesperanto as pyclesperanto,
        tensorflow as tensorflow,
        torch as torch,
    )
    from arraybridge.detect import Converter, get_converter
    from arraybridge.files.loading import load
    from arraybridge.files.saving import save
    from arraybridge.integrations.capture import capturing
    from arraybridge.keep.cached_function import CachedFunction, cache
    from arraybridge.keep.checkpoints import Checkpoint, Checkpoints
    from arraybridge.notebook.listing import Listed
    from arraybridge.planner import Converted, Plan
    from arraybridge.serialization import from_bytes, to_bytes
    from arraybridge.tables.table import Table

# All public names, also those of other modules: type checkers do not read a list that is computed.
__all__ = [
    "CPU_MEMORY_TYPES",
    "GPU_MEMORY_TYPES",
    "MEMORY_TYPE_CLEANUP_REGISTRY",
    "MEMORY_TYPE_CUPY",
    "MEMORY_TYPE_JAX",
    "MEMORY_TYPE_NUMPY",
    "MEMORY_TYPE_PYCLESPERANTO",
    "MEMORY_TYPE_TENSORFLOW",
    "MEMORY_TYPE_TORCH",
    "SCALING_FUNCTIONS",
    "SUPPORTED_MEMORY_TYPES",
    "VALID_GPU_MEMORY_TYPES",
    "VALID_MEMORY_TYPES",
    "ArraySpec",
    "Born",
    "Broker",
    "BrokerError",
    "BrokerTimeout",
    "BrokerUnavailable",
    "Bundle",
    "BundleSpec",
    "BundleWriter",
    "CachedFunction",
    "CallCancelled",
    "Channel",
    "ChannelClosed",
    "Checkpoint",
    "Checkpoints",
    "ConversionCount",
    "Converted",
    "Converter",
    "CopyWarning",
    "DeviceFallbackWarning",
    "DeviceUnavailable",
    "DtypeConversion",
    "Event",
    "EventsLost",
    "FrameworkNotAvailable",
    "Gap",
    "Got",
    "InvalidDevice",
    "InvalidMemoryType",
    "InvalidRequest",
    "Late",
    "Listed",
    "MemoryConversionError",
    "MemoryType",
    "Metric",
    "OutOfDescriptors",
    "OutOfMemory",
    "Outcome",
    "PeerGone",
    "PermissionDenied",
    "Plan",
    "Received",
    "Record",
    "Request",
    "RequestFailed",
    "Sender",
    "ServerGone",
    "Service",
    "Share",
    "ShareExists",
    "ShareNotFound",
    "SourceTypeMismatch",
    "Table",
    "UnsupportedArray",
    "UnsupportedDtype",
    "View",
    "Watch",
    "WatchClosed",
    "ZeroCopyUnavailable",
    "array_namespace",
    "asdlpack",
    "cache",
    "capturing",
    "cleanup_all_gpu_frameworks",
    "cleanup_cupy_gpu",
    "cleanup_jax_gpu",
    "cleanup_numpy_gpu",
    "cleanup_pyclesperanto_gpu",
    "cleanup_tensorflow_gpu",
    "cleanup_torch_gpu",
    "clear_cache",
    "conversion_counts",
    "convert",
    "convert_memory",
    "detect_memory_type",
    "ensure_module",
    "execute_with_oom_recovery",
    "from_bytes",
    "get_converter",
    "get_device_id",
    "is_oom_error",
    "load",
    "memory_types",
    "metrics",
    "optional_import",
    "process_slices",
    "reorder",
    "save",
    "scale_dtype",
    "select",
    "stack_slices",
    "supports_cuda_array_interface",
    "supports_dlpack",
    "to_bytes",
    "unstack_slices",
]

# Names that need the extension or more of the library are loaded at their first use. Six decorators have the names of
# frameworks, so __all__ omits them.
_HOMES = {
    name: home
    for home, names in {
        "_core": "View __version__",
        "adapters": "ensure_module get_device_id optional_import supports_cuda_array_interface supports_dlpack",
        "broker": "Broker",
        "broker.born.block": "Born",
        "broker.bundle": "Bundle BundleSpec BundleWriter",
        "broker.channel": "Channel Received Sender",
        "broker.patterns.calls": "CallCancelled",
        "broker.patterns.order": "Gap reorder",
        "broker.patterns.receiver": "Late",
        "broker.patterns.selection": "select",
        "broker.services": "Request RequestFailed ServerGone Service",
        "broker.share": "ArraySpec Got Outcome Share",
        "broker.watch": "Event Watch",
        "compat.cleanup": (
            "MEMORY_TYPE_CLEANUP_REGISTRY cleanup_all_gpu_frameworks cleanup_cupy_gpu cleanup_jax_gpu "
            "cleanup_numpy_gpu cleanup_pyclesperanto_gpu cleanup_tensorflow_gpu cleanup_torch_gpu "
            "clear_cache execute_with_oom_recovery is_oom_error"
        ),
        "compat.scaling": "SCALING_FUNCTIONS scale_dtype",
        "compat.stacking": "process_slices stack_slices unstack_slices",
        "conversion": "convert convert_memory",
        "conversion.records": "Record",
        "counts": "ConversionCount Metric conversion_counts metrics",
        "detect": "Converter get_converter",
        "decorators": "DtypeConversion cupy jax memory_types numpy pyclesperanto tensorflow torch",
        "files.loading": "load",
        "files.saving": "save",
        "array_api": "array_namespace",
        "integrations.capture": "capturing",
        "keep.cached_function": "CachedFunction cache",
        "keep.checkpoints": "Checkpoint Checkpoints",
        "notebook.listing": "Listed",
        "planner": "Converted Plan",
        "serialization": "from_bytes to_bytes",
        "tables.table": "Table",
    }.items()
    for name in names.split()
}

# The modules beside this one check it to detect another distribution's package of the same name.
_DISTRIBUTION = _conflict.DISTRIBUTION
_conflict.warn()

logging.getLogger("arraybridge").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'arraybridge' has no attribute {name!r}")
    try:
        found = getattr(importlib.import_module(f"arraybridge.{home}"), name)
    except OSError as error:
        lack = _exhausted_by(error, f"arraybridge.{name} cannot be loaded")
        if lack is None:
            raise
        raise lack from error
    globals()[name] = found
    return found


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext arraybridge`: adds the magics of `arraybridge.integrations.jupyter`."""
    importlib.import_module("arraybridge.integrations.jupyter").load(shell)


def _exhausted_by(error: OSError, what: str) -> Exception | None:
    # If no descriptor is left to load this very module, the error is raised as it is.
    errors = sys.modules.get("arraybridge.errors")
    return None if errors is None else errors.exhausted_by(error, what)


def __dir__() -> list[str]:
    # help() would print each class with all that it inherits, in more than 6,000 lines. The docstring above says more in 50.
    return [] if _called_by_help() else sorted({*__all__, *_HOMES})


def _called_by_help() -> bool:
    frame = sys._getframe(2)  # of `inspect.getmembers`, if pydoc asks
    for _ in range(3):
        if frame.f_globals.get("__name__") == "pydoc":
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False
