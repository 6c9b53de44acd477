# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: immutable tensors, unversioned capsules only, 64-byte alignment that it does not check itself.

It accepts no stream, so bytes on a GPU are complete before they are passed to it, and its own export waits. Tested with
TensorFlow on the simulated driver (tests/simulated_cuda/frameworks).
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from arraybridge import _core, adapters
from arraybridge.adapters import ensure_module, generic, numpy as numpy_adapter
from arraybridge.arrays import devices
from arraybridge.arrays.sparse_layout import Layout
from arraybridge.errors import UnsupportedArray
from arraybridge.planner import COMMON, FLOAT8, Caps, Description, dtype_refused

if TYPE_CHECKING:
    from arraybridge._core import View

CAPS: Final = Caps(
    name="tensorflow",
    layout="compact_c",
    align_bytes=64,
    ndim_max=64,
    read_only="immutable",
    private=False,
    dtypes=COMMON | {"bfloat16"},
    by_value=FLOAT8 - {"float8_e8m0fnu"},
    settled=True,
)
_HIDDEN: Final = "layout: TensorFlow does not expose the memory of a float8 without dimensions"
_QUANTIZED: Final = ("qint8", "quint8", "qint16", "quint16", "qint32")
_SYMBOLIC: Final = (
    "a symbolic tensor (inside tf.function, or a Keras input) has no values yet and no memory that can be shared: "
    "convert outside of it, or call the conversion with tf.py_function"
)
_GPU_CAPS: Final = replace(CAPS, devices=frozenset({devices.CPU, devices.CUDA}))


@functools.cache
def caps() -> Caps:
    return _GPU_CAPS if _cuda_numbers() else CAPS


def describe(tensor: Any) -> Description:
    value = _value(tensor)
    _refuse_formless(value)
    if _on_gpu(value):
        return replace(generic.described(_in_capsule(value), "tensorflow"), read_only=True, may_change="")
    alias = _alias(value)
    described = replace(numpy_adapter.described(alias), framework="tensorflow", read_only=True)
    if not _is_hidden(value):
        return described
    return replace(described, obstacles=(_HIDDEN,), fill=numpy_adapter.filler(alias))


def location(tensor: Any) -> devices.Device | None:
    if not isinstance(tensor, (_tensorflow().Tensor, _tensorflow().Variable)):
        return None  # its parts may lie on any device
    kind, _, number = tensor.device.rpartition("device:")[2].partition(":")
    return devices.HOST if kind == "CPU" else (devices.CUDA, _cuda_numbers()[int(number)]) if kind == "GPU" else None


def export(tensor: Any) -> View:
    value = _value(tensor)
    if _on_gpu(value):
        return _in_capsule(value)
    return numpy_adapter.export(_alias(value)).protected(constant=True).plain()


def view(view: View) -> Any:
    if view.dtype_name in CAPS.by_value:
        return _tensorflow().constant(numpy_adapter.view(view))
    if view.device[0] != devices.CUDA:
        return importer()(view)
    adapters.check_seen(view.device, "tensorflow", gpus)
    capsule = view.complete().immutable_capsule()
    return _tensorflow().experimental.dlpack.from_dlpack(_numbered(capsule, _cuda_numbers().index(view.device[1])))


def ordinary(kind: type) -> Callable[[Any], View] | None:
    """A function that makes Views of ordinary tensors of exactly this class and raises for others."""
    # The buffer protocol would copy a tensor from a GPU.
    return _plain if kind.__name__ == "EagerTensor" and not _physical_gpus(_tensorflow()) else None


def _plain(tensor: Any) -> View:
    _refuse_quantized(tensor)
    return _core.wrap_constant(tensor)


def _refuse_quantized(tensor: Any) -> None:
    # The buffer protocol takes these for integers.
    if tensor.dtype.is_quantized:
        raise UnsupportedArray("tensorflow", "any", "hand_over", "the tensor is quantized")


def quick(dtype: str) -> Callable[[View], Any]:
    """`view` for compact host memory of this dtype."""
    return view if dtype in CAPS.by_value else importer()


@functools.cache
def straight(target: str) -> Callable[[Any], tuple[Any, Hashable] | View] | None:
    """A function that makes arrays of `target`, or Views, of ordinary tensors on the host by TensorFlow itself, each
    with the key of its plan; verified before it is used. None: not possible.
    """
    if target != "numpy" or _physical_gpus(_tensorflow()):
        return None
    ndarray = numpy_adapter.module().ndarray

    quantized = frozenset(getattr(_tensorflow(), name).as_datatype_enum for name in _QUANTIZED)

    def aliased(tensor: Any) -> tuple[Any, Hashable] | View:
        if tensor._datatype_enum() in quantized:  # a fifth of the time of `dtype`
            _refuse_quantized(tensor)
        found = tensor._numpy_internal()  # its buffer protocol calls the same function
        if type(found) is not ndarray:
            return _core.wrap_constant(tensor)  # without dimensions the function returns a scalar
        found.setflags(write=False)
        return found, found.dtype

    try:
        trial = view(_core.copy_to_heap(_core.wrap_buffer(bytes(range(48)))).named("uint8"))
        made = aliased(trial)[0]  # type: ignore[index]
        alike = made.tobytes() == bytes(range(48)) and not made.flags.writeable
        right = alike and made.__array_interface__["data"][0] == _core.wrap_buffer(trial).address
    except Exception:
        right = False  # the function is not part of TensorFlow's public API
    return aliased if right else None


@functools.cache
def importer() -> Callable[[View], Any]:
    """TensorFlow's own importer, or the call below it, which takes three quarters of the time; verified before it is
    used.
    """
    take = _tensorflow().experimental.dlpack.from_dlpack  # behind three lazy modules

    public = _core.capsuled(take)

    try:
        below = importlib.import_module("tensorflow.python.pywrap_tfe").TFE_FromDlpackCapsule
        context = importlib.import_module("tensorflow.python.eager.context").context
    except Exception:
        return public  # the function is not part of TensorFlow's public API

    def taken(capsule: Any) -> Any:
        return below(capsule, context()._handle)  # None, which it refuses, until a context exists

    private = _core.capsuled(taken)
    return private if _alike(public, private) else public


def _alike(public: Callable[[View], Any], private: Callable[[View], Any]) -> bool:
    """True if both make the same tensor of the same memory."""
    trial = _core.copy_to_heap(_core.wrap_buffer(bytes(range(48)))).named("uint8")
    try:
        one, other = public(trial), private(trial)
        traits = [(type(each), each.dtype, each.shape, each.device, each.numpy().tolist()) for each in (one, other)]
        return bool(traits[0] == traits[1] and _core.wrap_buffer(other).address == trial.address)
    except Exception:
        return False


@functools.cache
def _tensorflow() -> Any:
    # Imports once instead of reading sys.modules, where another thread's import may be incomplete.
    return ensure_module("tensorflow")


def _value(tensor: Any) -> Any:
    # A variable's present value; a later assign writes to other memory, because this one is still referenced.
    return tensor.read_value() if isinstance(tensor, _tensorflow().Variable) else tensor


def _alias(tensor: Any) -> Any:
    """Its memory as a read-only ndarray; a copy if `_is_hidden`."""
    # .numpy() would copy. A dtype that the buffer protocol lacks is exported as a writable alias.
    if tensor.dtype.name in COMMON:
        return numpy_adapter.frozen(memoryview(tensor))
    if tensor.dtype.name == "bfloat16":
        return numpy_adapter.frozen(numpy_adapter.view(_in_capsule(tensor)))
    return numpy_adapter.frozen(tensor.__array__())


def _is_hidden(tensor: Any) -> bool:
    """True if TensorFlow does not expose its memory: neither its capsules nor its buffers support float8."""
    return not tensor.shape.rank and tensor.dtype.name in CAPS.by_value


def _refuse_formless(tensor: Any) -> None:
    tensorflow = _tensorflow()
    if not isinstance(tensor, tensorflow.Tensor):
        kind = type(tensor).__name__
        reason = f"a {kind} has no memory that can be shared: use to_tensor, tf.sparse.to_dense, or its parts"
        raise UnsupportedArray("tensorflow", "any", "hand_over", reason)
    if tensorflow.is_symbolic_tensor(tensor):
        raise UnsupportedArray("tensorflow", "any", "hand_over", _SYMBOLIC)
    # Checked before the memory is accessed: the export of a string tensor aborts the process.
    if tensor.dtype.name not in CAPS.dtypes and tensor.dtype.name not in CAPS.by_value:
        way_out = "put text beside an array (numpy.asarray(tensor).tolist()), or cast numbers (tf.cast)"
        if tensor.dtype.is_quantized:
            way_out = f"share its integers, tf.bitcast(tensor, tf.{tensor.dtype.name.removeprefix('q')})"
        raise dtype_refused("tensorflow", tensor.dtype.name, way_out)
    if not tensor.device.rpartition("device:")[2].startswith(("CPU", "GPU")):
        raise UnsupportedArray(
            "tensorflow", "any", "hand_over", f"a tensor on {tensor.device} has no memory that can be shared: copy it to the CPU or a GPU"
        )


def _on_gpu(tensor: Any) -> bool:
    # int32 tensors "on a GPU" often lie on the host, so the memory itself is checked. A tensor on the host needs no
    # check.
    if not tensor.device.rpartition("device:")[2].startswith("GPU"):
        return False
    return bool(tensor.__dlpack_device__()[0] == devices.CUDA)


def _in_capsule(tensor: Any) -> View:
    # Its __dlpack__ has no keywords for a GPU. This call waits, so no work is queued any more.
    capsule = _tensorflow().experimental.dlpack.to_dlpack(tensor)
    if _on_gpu(tensor):
        _, own = tensor.device.rsplit(":", 1)
        _numbered(capsule, _cuda_numbers()[int(own)])
    return _core.wrap(capsule)


def _numbered(capsule: Any, number: int) -> Any:
    """A capsule of GPU memory under another ordinal of the same GPU, TensorFlow's own or CUDA's. TensorFlow writes and
    expects its own ordinals, and would delete memory of an unknown device twice.
    """
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    # A DLTensor begins with its address, the type of its device, and the ordinal of the device.
    ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + 12).value = number
    return capsule


def _cuda_numbers() -> list[int]:
    """The CUDA ordinals of TensorFlow's GPUs, in the order of TensorFlow's ordinals. They depend on its visible devices
    and their order, and repeat for GPUs that are divided.
    """
    config = _tensorflow().config
    if not _physical_gpus(_tensorflow()):
        return []
    return [
        int(gpu.name.rpartition(":")[2])
        for gpu in config.get_visible_devices("GPU")
        for _ in config.get_logical_device_configuration(gpu) or [None]
    ]


@functools.cache
def _physical_gpus(tensorflow: Any) -> list[Any]:
    return list(tensorflow.config.list_physical_devices("GPU"))


def sparse_parts(tensor: Any) -> tuple[Layout, list[Any]] | None:
    if tensor.shape.rank is None or not tensor.shape.is_fully_defined():
        return None  # symbolic
    return Layout("coo", tuple(tensor.shape.as_list()), "by_value"), [tensor.indices, tensor.values]


def sparse_obstacle(layout: Layout, dtypes: frozenset[str]) -> str:
    if layout.format != "coo":
        return "layout: TensorFlow has no compressed rows or columns: an index per value is computed"
    if layout.indices != "by_value":
        return "layout: TensorFlow stores the indices value by value"
    return "" if dtypes == {"int64"} else "dtype: TensorFlow's indices are int64"


def sparse_made(layout: Layout, parts: Sequence[Any]) -> Any:
    tensorflow = _tensorflow()
    *indices, values = [tensorflow.cast(each, tensorflow.int64) for each in parts[:-1]] + [parts[-1]]
    if layout.format != "coo":
        starts, inner = indices
        outer = tensorflow.range(starts.shape[0] - 1, dtype=tensorflow.int64)
        outer = tensorflow.repeat(outer, starts[1:] - starts[:-1])
        indices = [outer, inner] if layout.format == "csr" else [inner, outer]
    if len(indices) > 1 or layout.indices == "apart":
        whole = tensorflow.stack(indices, axis=1)
    else:
        whole = indices[0] if layout.indices == "by_value" else tensorflow.transpose(indices[0])
    made = tensorflow.SparseTensor(whole, values, layout.shape)
    # Most of TensorFlow's operations expect row-major order. An array that needs a copy gets it.
    is_sorted = layout.sorted or layout.format == "csr"
    copied = sparse_obstacle(layout, frozenset(each.dtype.name for each in parts[:-1]))
    return made if is_sorted or not copied else tensorflow.sparse.reorder(made)


def gpus() -> Sequence[int]:
    return tuple(dict.fromkeys(_cuda_numbers()))


def uploaded(source: View, number: int) -> Any:
    tensorflow = _tensorflow()
    with tensorflow.device(f"GPU:{_cuda_numbers().index(number)}"):
        if source.device != devices.HOST and source.device[1] not in gpus():
            source = _core.copy_to_heap(source)  # from a GPU that TensorFlow does not see
        if source.device == devices.HOST:
            return tensorflow.constant(numpy_adapter.view(source))
        return tensorflow.raw_ops.DeepCopy(x=view(source))


def stacked(tensors: Sequence[Any]) -> Any:
    tensorflow = _tensorflow()
    with tensorflow.device(tensors[0].device.rpartition("device:")[2]):  # otherwise it might compute on its first GPU
        return tensorflow.stack(tuple(tensors))


def clean(number: int | None) -> None:
    """Does nothing: its allocator frees no memory while the process lives."""


def out_of_memory(error: BaseException) -> bool:
    return isinstance(error, _tensorflow().errors.ResourceExhaustedError)
