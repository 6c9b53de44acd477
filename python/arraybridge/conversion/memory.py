# SPDX-License-Identifier: Apache-2.0
"""convert and convert_memory: an array of one framework as another's, inside this process, without a broker.

    tensor = convert(array, "torch")                                  # where the array is, if torch can use that device
    tensor = convert(array, "torch", device="cuda:1")                 # on that GPU
    tensor = convert_memory(array, "numpy", "torch")                  # on GPU 0 if torch can use one
    tensor = convert_memory(array, "numpy", "torch", gpu_id=None)     # on the CPU
    tensor = MemoryType.NUMPY.to_torch(array)                         # the same as convert_memory(array, "numpy", "torch")

Memory is shared if possible; otherwise the values are copied once, into private memory of this process. The planner
decides, as in Broker.convert.
"""

from __future__ import annotations

import itertools
import operator
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast, overload

from arraybridge import _core, adapters, autograph, callers, counts
from arraybridge.adapters import MemoryAdapter, Uploader, numpy as numpy_adapter, readable
from arraybridge.arguments import check_copy
from arraybridge.arrays import devices
from arraybridge.arrays.classes import detect_memory_type, framework_of, memory_type_named, unreadable
from arraybridge.conversion import shortcut, sparse, tree, ways
from arraybridge.conversion.passing import passed
from arraybridge.conversion.source import Source, on_host, plain, source_of
from arraybridge.conversion.uploads import Uploads
from arraybridge.conversion.ways import Way
from arraybridge.errors import (
    BrokerError,
    DeviceFallbackWarning,
    DeviceUnavailable,
    FrameworkNotAvailable,
    InvalidDevice,
    InvalidRequest,
    MemoryConversionError,
    SourceTypeMismatch,
    raised_by,
)
from arraybridge.planner import Caps, Plan

if TYPE_CHECKING:
    import cupy
    import jax
    import numpy
    import tensorflow
    import torch

    from arraybridge.detect import CupyName, JaxName, NumpyName, TensorflowName, TorchName

_T = TypeVar("_T")
_FALLBACK: Final = "{target} can use no GPU here: gpu_id={asked} became the CPU (pass gpu_id=None to choose it)"


@overload
def convert_memory(
    data: object, source_type: str | None, target_type: NumpyName, gpu_id: int | None = ...,
    *, copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> numpy.ndarray[Any, Any]: ...  # fmt: skip
@overload
def convert_memory(
    data: object, source_type: str | None, target_type: CupyName, gpu_id: int | None = ...,
    *, copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> cupy.ndarray: ...  # fmt: skip
@overload
def convert_memory(
    data: object, source_type: str | None, target_type: TorchName, gpu_id: int | None = ...,
    *, copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> torch.Tensor: ...  # fmt: skip
@overload
def convert_memory(
    data: object, source_type: str | None, target_type: TensorflowName,
    gpu_id: int | None = ..., *, copy: bool | None = ..., allow_downcast: bool = ...,
) -> tensorflow.Tensor: ...  # fmt: skip
@overload
def convert_memory(
    data: object, source_type: str | None, target_type: JaxName, gpu_id: int | None = ...,
    *, copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> jax.Array: ...  # fmt: skip
@overload
def convert_memory(
    data: object, source_type: str | None, target_type: str, gpu_id: int | None = ...,
    *, copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> Any: ...  # fmt: skip
def convert_memory(
    data: object,
    source_type: str | None,
    target_type: str,
    gpu_id: int | None = 0,
    *,
    copy: bool | None = None,
    allow_downcast: bool = False,
    via: Way | None = None,
) -> Any:
    """The array as one of `target_type`: the same shape, dtype and bits, on the requested device.

    Arrays of foreign byte order (big-endian) are converted to the machine's own by one copy: the values stay. Only a
    NumPy array that is returned itself, without copy=True, keeps its byte order.

    Args:
        data: an array of one of the six frameworks, of up to 64 dimensions and any strides; with source_type=None also
            any object that `asdlpack` accepts. Or a tree of them, as in `Broker.convert`: dicts, lists, tuples,
            namedtuples, dataclasses, sparse arrays; plain values in it are kept.
        source_type: the type of `data`, or of each array of the tree, as a name or MemoryType; None detects it. SciPy's
            sparse arrays are of NumPy's type.
        target_type: a name or MemoryType.
        gpu_id: CUDA's ordinal of the GPU in this process, whatever ordinal `target_type` gives it (for pyclesperanto,
            the index in its list of devices); None: the CPU. NumPy has no GPUs and ignores it. If torch, TensorFlow or
            JAX can use no GPU at all, 0, the default, means the CPU, and the first such call of a process gives a
            DeviceFallbackWarning. Any other missing GPU is an error.
        copy: None: share memory if the target can hold it as it is, else copy once. On the host, writable memory, also
            if only another array can write it, is copied for JAX and TensorFlow, whose arrays are constant, and
            read-only memory for torch, which would write to it. True: always private memory; a tensor that requires
            grad keeps its gradient as torch's own. False: share or raise. Sharing writable memory with JAX and
            TensorFlow is a promise not to write it any more; read-only memory for torch always raises.
        allow_downcast: permits dtypes that the target would narrow (JAX without x64: 64 to 32 bits). Integers that do
            not fit still raise.
        via: the route of the bytes. "dlpack": share the memory, or copy it on its device, not through the host; "host":
            copy in memory of the host; "serialize": as bytes, as `to_bytes` makes them. None: the cheapest. An
            impossible route is refused with the reason.

    Returns:
        An array of the target's own class, or the tree with such arrays. It keeps shared memory alive. For the same
        type on the same device: the same object, unless copy=True.

    Raises:
        InvalidMemoryType: a name that is none of the six, or with source_type=None an unreadable object.
        SourceTypeMismatch: `data` is not of `source_type`.
        FrameworkNotAvailable: the target cannot be imported.
        InvalidDevice, DeviceUnavailable: not a GPU number; no such GPU for this target.
        UnsupportedDtype, UnsupportedArray: the target cannot hold it. Checked, like all above, before any copy.
        ZeroCopyUnavailable: copy=False, and a copy is needed.
        InvalidRequest: no such route, or a tree without any array.
        MemoryConversionError: the base of all of them; itself: a framework refused.
        For a tree the message begins with the path of the array, for example ['a'][3].

    Example:
        >>> tensor = convert_memory(np.arange(3), "numpy", "torch", gpu_id=None)
        >>> tensor.tolist()
        [0, 1, 2]
    """
    return converted(data, source_type, target_type, gpu_id, copy, allow_downcast, via)


@overload
def convert(
    array: object, framework: NumpyName, *,
    device: object = ..., copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> numpy.ndarray[Any, Any]: ...  # fmt: skip
@overload
def convert(
    array: object, framework: CupyName, *,
    device: object = ..., copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> cupy.ndarray: ...  # fmt: skip
@overload
def convert(
    array: object, framework: TorchName, *,
    device: object = ..., copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> torch.Tensor: ...  # fmt: skip
@overload
def convert(
    array: object, framework: TensorflowName, *,
    device: object = ..., copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> tensorflow.Tensor: ...  # fmt: skip
@overload
def convert(
    array: object, framework: JaxName, *,
    device: object = ..., copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> jax.Array: ...  # fmt: skip
@overload
def convert(
    array: object, framework: str, *,
    device: object = ..., copy: bool | None = ..., allow_downcast: bool = ..., via: Way | None = ...,
) -> Any: ...  # fmt: skip
def convert(
    array: object,
    framework: str,
    *,
    device: object = None,
    copy: bool | None = None,
    allow_downcast: bool = False,
    via: Way | None = None,
) -> Any:
    """The array, or tree of arrays, as one of `framework`: the same shape, dtype and bits. The class of the array says
    which framework it is of. The source is unchanged.

    It differs from `convert_memory` in that it needs neither the source's framework nor a device, and from
    `Broker.convert` in that it needs no broker: copies lie in private memory of this process.

    Args:
        array: as `data` of convert_memory with source_type=None.
        framework: a name of the six, or a MemoryType.
        device: None: the array's device, if the framework has arrays there, else the host or the framework's first
            device. Or "cpu", "cuda", "cuda:1", the number or the UUID of a GPU, which must exist: a missing one is an
            error, not the CPU.
        copy, allow_downcast, via: as in convert_memory.

    Returns:
        As convert_memory.

    Raises:
        InvalidDevice, DeviceUnavailable: not a device, or none of this framework here. Other errors of convert_memory.

    Example:
        >>> tensor = arraybridge.convert(np.arange(3), "torch")
        >>> tensor.tolist()
        [0, 1, 2]
    """
    return converted(array, None, framework, _ANYWHERE if device is None else _Wish(device), copy, allow_downcast, via)


class _Wish(NamedTuple):
    """The device of `convert`, where convert_memory has a gpu_id."""

    device: object  # None: where the array is


class _Names(NamedTuple):
    """Source and target, as errors name them."""

    source: str
    target: str


def converted(
    data: Any,
    source_type: str | None,
    target_type: str,
    gpu_id: int | _Wish | None,
    copy: bool | None = None,
    allow_downcast: bool | None = None,
    via: Way | None = None,
    uploads: Uploads | None = None,
    sole: bool = False,
    trees: bool = True,
) -> Any:
    """convert_memory. `allow_downcast`: None is False for callers that cannot pass it: errors do not suggest it.
    `uploads`: collects the copies of several arrays from the host to GPUs, which the caller executes. `sole`: the
    caller has the only reference to the array, so it is constant and may be shared with constant arrays. `trees`:
    False: accepts arrays only.
    """
    wishes: tuple[object, ...] | None = None
    careful = sole or via is not None or allow_downcast
    if not careful and (copy is None or copy is False) and isinstance(target_type, str):
        fallen_back = type(gpu_id) is int and gpu_id == 0 and target_type in _without_gpu
        if fallen_back or gpu_id is None or gpu_id is _ANYWHERE or (type(gpu_id) is int and gpu_id >= 0 and target_type == "numpy"):
            wishes = source_type, target_type, copy
            known = shortcuts.take(data, *wishes)
            if known is not None:
                if fallen_back:
                    _tell_of_fallback(target_type)
                return known[0]
    check_copy(copy)
    ways.check_way(via)
    if trees and tree.is_tree(data):
        return _tree_converted(data, source_type, target_type, gpu_id, copy, allow_downcast, via)
    names = _names(data, source_type, target_type)
    target = adapters.of_memory_type(names.target)
    caps = _guarded(target.caps, names)
    gpus: Sequence[str] = ()
    if isinstance(gpu_id, _Wish):
        device = gpu_id.device
        if device is not None:
            target = getattr(target, "on_named_device", target)
            gpus = () if isinstance(device, str) and device == "cpu" else _core.gpus()
    else:
        device = _device(gpu_id, target, caps, names)
        gpus = [""] * (device + 1) if isinstance(device, int) else ()
    batch = Uploads() if uploads is None else uploads
    result, chosen = moved(data, target, caps, device, gpus, copy, allow_downcast, via, batch, names, sole)
    if uploads is None:
        _guarded(batch.make, names, "place")
    counts.of_process.note(chosen)
    if wishes is not None and chosen.device == "cpu":
        shortcuts.learn((type(data), *wishes), data, target, caps, chosen)
    return result


def _tree_converted(
    data: Any,
    source_type: str | None,
    target_type: str,
    gpu_id: int | _Wish | None,
    copy: bool | None,
    allow_downcast: bool | None,
    via: Way | None,
) -> Any:
    """The tree, with each array converted.

    Raises:
        InvalidMemoryType: one of the two names is not a memory type. InvalidRequest: the tree contains no array;
            SourceTypeMismatch if the caller has named its type.
    """
    source = "tree" if source_type is None else memory_type_named(source_type, "tree")
    names = _Names(source, memory_type_named(target_type, source))
    uploads = Uploads()

    def made() -> None:
        _guarded(uploads.make, names, "place")

    def one(leaf: Any) -> Any:
        return converted(leaf, source_type, target_type, gpu_id, copy, allow_downcast, via, uploads, trees=False)

    def assembled(apart: sparse.Sparse, parts: list[Any]) -> Any:
        made()  # its framework may read the parts
        if apart.framework == names.target and all(part is before for part, before in zip(parts, apart.parts, strict=True)):
            return apart.array
        target = adapters.of_memory_type(names.target)
        result, chosen = sparse.assembled(target, names.target, apart.layout, parts, apart.framework, copy, apart.rearranged)
        if chosen is not None:
            counts.of_process.note(chosen)
        return result

    try:
        result = tree.converted(one, data, assembled, names.target)
    except InvalidRequest as error:
        if source_type is None or not error.args[0].startswith(tree.NO_ARRAY):
            raise
        raise SourceTypeMismatch(source, names.target, "detect", f"the data is not {source}: {error.args[0]}") from None
    made()
    return result


def values_of(array: Any, target_type: str) -> Any:
    """The values of an array of one of the six frameworks as an ndarray on the host, to be converted to `target_type`;
    shared if possible.

    Raises:
        UnsupportedArray: NumPy's own array that has more than values. MemoryConversionError: as convert_memory.
    """
    values = converted(array, None, "numpy", None, trees=False)
    if values is array:
        _guarded(lambda: numpy_adapter.refuse_masked(array), _Names("numpy", target_type))
    return values


# Memory types of frameworks that could use no GPU when one was requested. Usually none appears later in such a process;
# if one does, the next array without a cached plan finds it.
_without_gpu: Final[set[str]] = set()
# The number of fallbacks in this process: the first one is reported.
fallbacks: Final = itertools.count()
_ANYWHERE: Final = _Wish(None)
# By class and checked names: plans that hold for all similar arrays.
shortcuts: Final = shortcut.Shortcuts()


def _names(data: object, source_type: object, target_type: object) -> _Names:
    """Raises:
    InvalidMemoryType: one of the two is not a memory type, or the data is unreadable.
    SourceTypeMismatch: `data` is not of the type that the caller named.
    """
    found = detect_memory_type(data)
    kind = found or type(data).__name__
    named = kind if source_type is None else str(source_type)
    wanted = memory_type_named(target_type, named)
    if source_type is None and found is None and not readable(data):
        raise unreadable(data, wanted)
    # Objects of several arrays belong to a framework, too; its adapter describes them.
    if source_type is not None and memory_type_named(source_type) not in (found, framework_of(type(data))):
        reason = f"the data is {kind}, not {named}; source_type=None detects it"
        raise SourceTypeMismatch(named, wanted, "detect", reason)
    return _Names(named, wanted)


def moved(
    data: Any,
    target: MemoryAdapter,
    caps: Caps,
    device: object,
    gpus: Sequence[str],
    copy: bool | None,
    allow_downcast: bool | None,
    via: Way | None,
    uploads: Uploads,
    names: _Names,
    sole: bool = False,
) -> tuple[Any, Plan]:
    """The result of the full path, and its plan."""
    source = _guarded(lambda: source_of(data, names.target, private=caps.private and not copy), names)
    if sole and caps.read_only == "immutable":
        source = source._replace(description=replace(source.description, read_only=True, may_change=""))
    chosen = ways.planned(via, source.description, caps, copy, device=device, allow_downcast=allow_downcast, gpus=gpus)
    if chosen.route == "identity":
        return source.array, chosen
    return _guarded(lambda: _placed(source, chosen, target, caps, uploads), names, chosen.route), chosen


def _placed(source: Source, chosen: Plan, target: MemoryAdapter, caps: Caps, uploads: Uploads) -> Any:
    """The target's array, over the source's memory or a private copy of it, which `uploads` may still have to execute."""
    if chosen.zero_copy:
        return target.view(source.shown())
    duplicate = source.duplicate(chosen)
    if duplicate is not None:
        return duplicate
    source = passed(source, chosen)
    here, where = source.description.device, devices.of(chosen.device)
    if here[0] == devices.CUDA and source.description.fill is not None:
        # It is already a private copy on the same device, and complete if it may stay there.
        unhindered = plain(source)
        if here == where and chosen.dtype == source.description.dtype:
            return target.view(unhindered.view())
        source = unhindered
    if where == devices.HOST:
        return target.view(on_host(source, chosen, caps))
    if not chosen.on_shared_memory:
        return cast(Uploader, target).upload(on_host(source, chosen, caps), where)
    described = source.description
    if described.fill is not None or described.pull is not None or chosen.dtype != described.dtype:
        return uploads.array(on_host(source, chosen, caps), target, where[1])
    return uploads.array(source.view(), target, where[1])


def _device(gpu_id: object, target: MemoryAdapter, caps: Caps, names: _Names) -> object:
    """The planner's device argument: a GPU's ordinal, or "cpu"."""
    number = _ordinal(gpu_id, names)
    has_host = devices.CPU in caps.devices
    if caps.name == "numpy" or (number is None and has_host):
        return "cpu"
    usable: Sequence[int] = ()
    if caps.own is not None:
        usable = range(caps.own.number)
    elif devices.CUDA in caps.devices:
        usable = _guarded(target.gpus, names, "device")
    if usable:
        _without_gpu.discard(names.target)
    if number is not None and number in usable:
        return number
    if number == 0 and not usable and has_host:
        _without_gpu.add(names.target)
        _tell_of_fallback(names.target)
        return "cpu"
    kind = devices.CUDA if caps.own is None else caps.own.type
    there = [*(["cpu"] if has_host else []), *(devices.named((kind, each)) for each in usable)]
    if number is None:
        reason = f"{names.target} has no arrays on the CPU (gpu_id=None); its CUDA and other devices here: {there}"
    else:
        reason = f"{names.target} has no CUDA device (or other GPU) {number}: it can use {there}"
    raise DeviceUnavailable(*names, "device", reason)


def _tell_of_fallback(target: str) -> None:
    if next(fallbacks) == 0:
        callers.warn(_FALLBACK.format(target=target, asked=0), DeviceFallbackWarning)


def _ordinal(gpu_id: object, names: _Names) -> int | None:
    if gpu_id is None:
        return None
    try:
        number = -1 if isinstance(gpu_id, bool) else operator.index(gpu_id)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0:
        reason = f"gpu_id={reprlib.repr(gpu_id)} is not the number of a GPU: pass 0, 1, ... in CUDA's order, or None for the CPU"
        raise InvalidDevice(*names, "device", reason)
    return number


def _guarded(question: Callable[[], _T], names: _Names, method: str = "hand_over") -> _T:
    """The result of `question`; any exception becomes a MemoryConversionError with source and target."""
    try:
        return question()
    except MemoryConversionError as error:
        known = error.target_type != "any" and error.source_type != "array"
        if known and not isinstance(error, FrameworkNotAvailable):
            raise
        raise error.between(*names) from error.__cause__
    except BrokerError:
        raise
    except Exception as error:
        raise raised_by(error, *names, method) from error


def brought(array: Any, memory_type: str, gpu_id: int | None) -> Any:
    """A NumPy array without other references as one of `memory_type`, shared if possible.

    Args:
        gpu_id: None: on the host; for a framework without arrays there, on its first device.
    """
    caps = adapters.of_memory_type(memory_type).caps()
    if gpu_id is None and devices.CPU not in caps.devices:
        gpu_id = 0
    return converted(array, "numpy", memory_type, gpu_id, sole=True)


def device_of(array: Any) -> int | None:
    """The GPU ordinal of an array of one of the six frameworks, None on the host."""
    return adapters.get_device_id(array, str(detect_memory_type(array)))


autograph.mark_module(__name__)
