# SPDX-License-Identifier: Apache-2.0
"""JAX: immutable arrays, unversioned DLPack only, 64-byte alignment, 64-bit types only with x64 enabled.

As those of jnp.asarray, its arrays in host memory are not committed to a device, so that jax.default_device decides where
JAX computes with them; they are if the caller named the device.

On a GPU its arrays are read after its own stream, and made over a View that orders JAX's stream itself. Tested with JAX on
the simulated driver (tests/simulated_cuda/frameworks).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from arraybridge import _core, adapters
from arraybridge.adapters import ensure_module, generic, numpy as numpy_adapter
from arraybridge.arrays import devices
from arraybridge.arrays.sparse_layout import Layout
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

_BOTH: Final = frozenset({devices.CPU, devices.CUDA})
_GPU_CAPS: Final = replace(CAPS, devices=_BOTH)
GPU_CAPS_WITHOUT_X64: Final = replace(CAPS_WITHOUT_X64, devices=_BOTH)


def caps() -> Caps:
    # Read each time: it is a setting of the process, and with `jax.enable_x64` of a thread.
    jax = _jax()
    on_host, with_gpus = (CAPS, _GPU_CAPS) if jax.config.jax_enable_x64 else (CAPS_WITHOUT_X64, GPU_CAPS_WITHOUT_X64)
    return with_gpus if _has_gpus(jax) else on_host


def describe(array: Any) -> Description:
    _refuse_formless(array)
    array = _one(array)
    if _platform(array) == "gpu":
        return replace(generic.described(export(array), "jax"), read_only=True, may_change="")
    return replace(numpy_adapter.described(_alias(array)), framework="jax")


def location(array: Any) -> devices.Device | None:
    jax = _jax()
    if isinstance(array, jax.core.Tracer):
        # A computation runs where JAX computes; on a GPU its ordinal is unknown.
        return devices.HOST if jax.default_backend() == "cpu" else None
    found = {(each.platform, each.local_hardware_id) for each in array.sharding.device_set}
    if {platform for platform, _ in found} == {"cpu"}:
        return devices.HOST
    platform, number = found.pop()
    return (devices.CUDA, number) if platform == "gpu" and not found else None


def export(array: Any) -> View:
    array = _one(array)
    if _platform(array) == "gpu":
        # For a stream JAX orders its work before it; without one it would wait on the host.
        return _core.wrap(array.__dlpack__(stream=devices.LEGACY_STREAM))
    return numpy_adapter.export(_alias(array)).protected(constant=True).plain()


def view(view: View) -> Any:
    adapters.check_seen(view.device, "jax", gpus)
    return importer(_jax())(view)


@functools.cache
def importer(jax: Any) -> Callable[[View], Any]:
    """JAX's own importer, or the C function below it, which takes a tenth of the time; verified before it is used."""
    uncommitted = _uncommitted(jax)

    def public(view: View) -> Any:
        made = jax.dlpack.from_dlpack(view.for_immutable_consumer())
        return uncommitted(made) if view.device == devices.HOST else made

    try:
        below = importlib.import_module("jax._src.lib")._jax.dlpack_managed_tensor_to_buffer
        host = jax.local_devices(backend="cpu")[0]
    except Exception:
        return public  # the function is not part of JAX's public API
    # The arguments after device and stream: copy, and since jaxlib 0.10 the type of the device.
    for more in ((False, devices.CPU), (False,)):

        def private(view: View, more: tuple[Any, ...] = more) -> Any:
            if view.device != devices.HOST:
                return public(view)
            return uncommitted(below(view.immutable_capsule(), host, None, *more))

        if is_alike(public, private):
            return private
    return public


def _uncommitted(jax: Any) -> Callable[[Any], Any]:
    """A function that makes an array over the memory of an array on the host, not committed to the device. JAX imports
    DLPack as committed only; the function is verified before it is used.
    """
    for function in _made_anew, _put_again:
        try:
            committed = jax.dlpack.from_dlpack(_trial().for_immutable_consumer())
            made = function(committed)
            same = made.unsafe_buffer_pointer() == committed.unsafe_buffer_pointer() and type(made) is type(committed)
            # By NumPy: within jit, JAX would record the comparison instead of making it.
            alike = bool((_alias(made) == _alias(committed)).all())
            if same and alike and not made.committed and made.sharding == committed.sharding:
                return function
        except Exception:
            continue  # JAX promises neither the arguments of its class nor that it aliases memory
    return lambda array: array


def _made_anew(array: Any) -> Any:
    return type(array)(array.aval, array.sharding, [array], committed=False, _skip_checks=True)


def _put_again(array: Any) -> Any:
    """By public functions, which take twenty times as long."""
    jax = _jax()
    with jax.default_device(next(iter(array.devices()))):
        return jax.device_put(_alias(array), may_alias=True)


class _Committed:
    """This adapter for a caller that named the device: its arrays are committed."""

    def __getattr__(self, name: str) -> Any:
        return globals()[name]

    def view(self, view: View) -> Any:
        adapters.check_seen(view.device, "jax", gpus)
        return _jax().dlpack.from_dlpack(view.for_immutable_consumer())


on_named_device: Final = _Committed()


def _trial() -> View:
    return _core.copy_to_heap(_core.wrap_buffer(bytes(range(48)))).named("uint8")


def is_alike(public: Callable[[View], Any], private: Callable[[View], Any]) -> bool:
    """True if both make the same array of the same memory."""
    trial = _trial()
    try:
        one, other = public(trial), private(trial)
        traits = [(type(each), each.dtype, each.shape, each.sharding, each.committed, each.weak_type, each.aval) for each in (one, other)]
        return bool(traits[0] == traits[1] and other.unsafe_buffer_pointer() == trial.address and (one == other).all())
    except Exception:
        return False


def quick(dtype: str) -> Callable[[View], Any]:
    """`view` for compact host memory of this dtype."""
    return importer(_jax())


def ordinary(kind: type) -> Callable[[Any], View] | None:
    """A function that makes Views of ordinary arrays of exactly this class and raises for others."""
    return _core.wrap_constant if kind.__name__ == "ArrayImpl" and not _has_gpus(_jax()) else None


@functools.cache
def _jax() -> Any:
    # Imports once instead of reading sys.modules, where another thread's import may be incomplete.
    jax = ensure_module("jax")
    ensure_module("jax.dlpack")
    return jax


def sparse_parts(array: Any) -> tuple[Layout, list[Any]] | None:
    sparse = _sparse()
    kind, shape = type(array), tuple(array.shape)
    if not isinstance(array, (sparse.BCOO, sparse.BCSR)):
        reason = f"an array of {kind.__name__} cannot be shared: pass a BCOO or BCSR, or array.todense()"
        raise UnsupportedArray("jax", "any", "hand_over", reason)
    if array.n_batch or array.n_dense:
        dimensions = f"{array.n_batch} batch and {array.n_dense} dense dimensions"
        reason = f"a {kind.__name__} of {dimensions} is supported by JAX only: pass one without, or array.todense()"
        raise UnsupportedArray("jax", "any", "hand_over", reason)
    for part in (array.data, array.indices):
        _refuse_formless(part)
    if isinstance(array, sparse.BCSR):
        count = int(array.indptr[-1])  # values after the last index pointer are padding
        padded = count < array.nse
        indices, data = (array.indices[:count], array.data[:count]) if padded else (array.indices, array.data)
        return Layout("csr", shape), [array.indptr, indices, data]
    inside = (array.indices < _jax().numpy.asarray(shape, array.indices.dtype)).all(axis=1)
    layout = Layout("coo", shape, "by_value", sorted=bool(array.indices_sorted and array.unique_indices))
    if inside.all():
        return layout, [array.indices, array.data]
    return layout, [array.indices[inside], array.data[inside]]  # indices out of range are padding


def sparse_canonical(array: Any) -> Any:
    return _sparse().BCSR.from_bcoo(array.to_bcoo().sum_duplicates(remove_zeros=False))


def sparse_obstacle(layout: Layout, dtypes: frozenset[str]) -> str:
    if layout.format == "csc":
        return "layout: JAX has no compressed columns: an index per value is computed"
    if layout.format == "coo" and layout.indices != "by_value":
        return "layout: JAX stores the indices value by value"
    return ""


def sparse_made(layout: Layout, parts: Sequence[Any]) -> Any:
    numpy, sparse = _jax().numpy, _sparse()
    *indices, data = parts
    if layout.format == "csr":
        return sparse.BCSR((data, indices[1], indices[0]), shape=layout.shape)
    if layout.format == "csc":
        starts, rows = indices
        columns = numpy.arange(len(starts) - 1, dtype=rows.dtype)
        columns = numpy.repeat(columns, numpy.diff(starts), total_repeat_length=len(rows))
        whole = numpy.stack([rows, columns], axis=1)
    elif layout.indices == "apart":
        whole = numpy.stack(indices, axis=1)
    else:
        whole = indices[0] if layout.indices == "by_value" else indices[0].T
    return sparse.BCOO((data, whole), shape=layout.shape, indices_sorted=layout.sorted, unique_indices=layout.sorted)


@functools.cache
def _sparse() -> Any:
    return ensure_module("jax.experimental.sparse")


def _alias(array: Any) -> Any:
    # JAX's own read-only NumPy alias, which also supports bfloat16 and float8 and waits for the value.
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
    elif len(array.sharding.device_set) > 1 and not array.is_fully_replicated:
        form = "an array sharded over several devices (export the shards)"
    elif _platform(array) not in ("cpu", "gpu"):
        form = f"an array on {next(iter(array.sharding.device_set))}"
    if form is not None:
        reason = f"{form} has no memory that can be shared: pass a concrete array on the CPU or one GPU"
        raise UnsupportedArray("jax", "any", "hand_over", reason)


def _one(array: Any) -> Any:
    """The array itself; for a fully replicated array the shard of the first device."""
    return array if len(array.sharding.device_set) == 1 else array.addressable_data(0)


def _platform(array: Any) -> str:
    return str(next(iter(array.sharding.device_set)).platform)


@functools.cache
def _has_gpus(jax: Any) -> bool:
    return bool(gpus())


def gpus() -> Sequence[int]:
    return tuple(_local_devices())


def _local_devices() -> dict[int, Any]:
    """JAX's GPUs by CUDA ordinal: some GPUs may be hidden from it."""
    try:
        return {each.local_hardware_id: each for each in _jax().local_devices(backend="cuda")}
    except RuntimeError:  # it has no GPU backend
        return {}


def uploaded(source: View, number: int) -> Any:
    jax = _jax()
    seen = _local_devices()
    if source.device != devices.HOST and source.device[1] not in seen:
        source = _core.copy_to_heap(source)  # from a GPU that JAX does not see
    on_host = source.device == devices.HOST
    values = numpy_adapter.view(source) if on_host else jax.numpy.array(view(source), copy=True)
    # JAX reads the View's memory until the value is ready, and exports one that is not ready from another GPU too early.
    return jax.device_put(values, seen[number]).block_until_ready()


def stacked(arrays: Sequence[Any]) -> Any:
    return _jax().numpy.stack(tuple(arrays))


def clean(number: int | None) -> None:
    """Does nothing: its allocator frees no memory while the process lives."""


def out_of_memory(error: BaseException) -> bool:
    jax = _jax()
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)
