# SPDX-License-Identifier: Apache-2.0
"""Decides how an array gets from one framework to another: the cheapest route, and the reasons against a cheaper one.

Pure: it uses numbers and names, imports no framework and touches no memory. Adapters describe arrays and the
capabilities of their framework; plan() compares the two, before any copy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from arraybridge import autograph
from arraybridge.arrays import devices
from arraybridge.arrays.devices import Device, OwnDevices
from arraybridge.errors import (
    DeviceUnavailable,
    MemoryConversionError,
    UnsupportedArray,
    UnsupportedDtype,
    ZeroCopyUnavailable,
    printable,
)

Code = tuple[int, int, int]  # DLPack: code, bits, lanes
Reaches = Callable[[int, int], bool]  # from one GPU to another, by ordinal
Route = Literal["identity", "hand_over", "place"]
# The layouts that a target accepts, the most general first; each includes the ones after it.
Layout = Literal["strided", "nonnegative", "compact_permutation", "compact_c"]

COPY_REQUESTED: Final = "copy_requested: copy=True"
DETACHED: Final = "detached: the result has no gradient"
ASKED_FOR: Final = "(asked for)"  # the end of a reason that the user has asked for

CODES: Final[Mapping[str, Code]] = {
    "bool": (6, 8, 1),
    **{f"int{bits}": (0, bits, 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (1, bits, 1) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": (2, bits, 1) for bits in (16, 32, 64)},
    "bfloat16": (4, 16, 1),
    **{f"complex{bits}": (5, bits, 1) for bits in (32, 64, 128)},
    "float8_e3m4": (7, 8, 1),
    "float8_e4m3": (8, 8, 1),
    "float8_e4m3b11fnuz": (9, 8, 1),
    "float8_e4m3fn": (10, 8, 1),
    "float8_e4m3fnuz": (11, 8, 1),
    "float8_e5m2": (12, 8, 1),
    "float8_e5m2fnuz": (13, 8, 1),
    "float8_e8m0fnu": (14, 8, 1),
}
# Elements of less than a byte, one after another: in bundles only.
PACKED: Final[Mapping[str, Code]] = {"float6_e2m3fn": (15, 6, 1), "float6_e3m2fn": (16, 6, 1), "float4_e2m1fn": (17, 4, 1)}
NAMES: Final[Mapping[Code, str]] = {code: name for name, code in CODES.items()}
COMMON: Final = frozenset(CODES) - {name for name in CODES if name.startswith("float8")} - {"complex32", "bfloat16"}
FLOAT8: Final = frozenset({"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"})
# NumPy's own dtypes: they travel as int64 with a unit, and as bytes (one additional dimension) with a description.
OPAQUE_PREFIXES: Final = ("datetime64", "timedelta64", "struct:")


@dataclass(frozen=True, slots=True, eq=False)
class Caps:
    """Capabilities of one framework. Compared by identity, so that decisions can be cached by it."""

    name: str
    layout: Layout
    align_bytes: int  # of the first element in host memory; 0: the item size
    ndim_max: int
    read_only: Literal["kept", "dropped", "immutable"]
    private: bool  # a host share is mapped copy-on-write for it
    dtypes: frozenset[str]
    opaque: bool = False  # dtypes of OPAQUE_PREFIXES
    by_value: frozenset[str] = frozenset()  # dtypes that only a copy of the values can transfer
    # Dtypes that it would narrow silently in its present configuration: name -> resulting dtype.
    narrows: Mapping[str, str] = field(default_factory=dict)
    way_out: str = ""  # how the user can keep them
    devices: frozenset[int] = frozenset({devices.CPU})  # DLPack's types of the devices of its arrays
    # Set: its arrays lie only there, only it can address them, and it uploads arrays itself.
    own: OwnDevices | None = None
    ndim_min: int = 0
    empty: bool = True  # arrays without elements
    in_one_dimension: frozenset[str] = frozenset()  # dtypes that it supports only in one dimension
    settled: bool = False  # constant as long as the process lives: no setting changes them

    @property
    def promised(self) -> Caps:
        """The same framework, for a user who promises not to write to shared memory."""
        return _promised(self)

    def takes(self, dtype: str) -> bool:
        return dtype in self.dtypes or (self.opaque and dtype.startswith(OPAQUE_PREFIXES))


# One object per value, because decisions are cached by identity.
@functools.lru_cache(maxsize=64)
def _promised(caps: Caps) -> Caps:
    return replace(caps, private=False, read_only="kept") if caps.read_only == "dropped" else caps


@dataclass(frozen=True, slots=True)
class Description:
    """The properties of one array that the decision needs."""

    framework: str  # name of the adapter; "share" for broker memory
    dtype: str  # logical name
    code: Code
    shape: tuple[int, ...]  # as it travels: opaque structs have one additional dimension
    strides: tuple[int, ...] | None  # elements; None: compact row-major
    address: int
    read_only: bool
    # For read-only memory: why its bytes may still change; "": no process writes them any more.
    may_change: str = ""
    obstacles: tuple[str, ...] = ()  # "code: text", the reasons why no View of these bytes can be shared
    notes: tuple[str, ...] = ()
    # For an array with obstacles: writes its values into a View of this shape and dtype.
    fill: Callable[[Any], None] | None = field(default=None, repr=False, compare=False)
    # For memory that no View can describe: its values in private host memory, by one copy.
    pull: Callable[[], Any] | None = field(default=None, repr=False, compare=False)
    device: Device = devices.HOST
    kind: str = "memfd"  # of a share: how this process opened its memory
    # Set: why its memory cannot be shared. The array can only be returned as it is.
    refusal: MemoryConversionError | None = field(default=None, repr=False, compare=False)

    @classmethod
    def refused(cls, framework: str, refusal: MemoryConversionError, dtype: str = "", device: Device = devices.UNKNOWN) -> Description:
        """The description of an array that only its own framework can use."""
        return cls(framework, dtype, (0, 0, 1), (), None, 0, False, device=device, refusal=refusal)

    @property
    def changes(self) -> bool:
        """True if a write by another than the target may change its values."""
        return self.framework != "share" and (not self.read_only or bool(self.may_change))

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * (self.code[1] * self.code[2] // 8)


@dataclass(frozen=True, slots=True)
class Plan:
    """A route, and the reasons against a cheaper one.

    Attributes:
        source: the framework that the array comes from; "share" for one of the broker.
        target: the framework of the result.
        device: where the result lies: "cpu", "cuda:0".
        route: how the result is made.
        via: the route of the bytes. "dlpack": shared inside this process; "host": copied in memory of the host; of shares
            "host-shm", "zero-copy-vmm", "zero-copy-ipc", "zero-copy-host" (a GPU reads the host's memory); of copies with
            an end on a GPU "h2d", "d2h", "d2h+h2d", "d2d-copy". If the caller chose a way, its name.
        copies: how often the bytes are copied.
        copied_bytes: bytes of all copies together.
        zero_copy: True if nothing is copied.
        dtype: of the result.
        reasons: why something is copied.
        notes: what else is worth knowing.

    Example:
        >>> tensor, plan = broker.convert(np.arange(6)[::-1], "torch", explain=True)
        >>> plan.copies, plan.copied_bytes, plan.reasons
        (1, 48, ('layout: ...',))
    """

    source: str
    target: str
    device: str
    route: Route
    via: str
    copies: int
    copied_bytes: int
    zero_copy: bool
    dtype: str
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def on_shared_memory(self) -> bool:
        """True if the result lies where Views can describe memory: on the host, or on a CUDA GPU."""
        return self.device.startswith(("cpu", "cuda"))

    def __str__(self) -> str:
        counted = f"{self.copies} {'copy' if self.copies == 1 else 'copies'}, {self.copied_bytes} bytes"
        cost = counted if self.copies else "no copy"
        why = "; ".join((*self.reasons, *self.notes))
        # A reason may name a dtype that another process chose.
        return printable(f"{self.source} to {self.target} by {self.route}: {cost}{f' ({why})' if why else ''}")


class Converted(NamedTuple):
    """A result and its plan (`explain=True`).

    Attributes:
        array: the result.
        plan: how it was made, and why something was copied.

    Example:
        >>> share = broker.put(np.ones((2, 3)), "why")
        >>> broker.get("why", explain=True).plan.zero_copy
        True
    """

    array: Any
    plan: Plan


def plan(
    source: Description,
    target: Caps,
    *,
    copy: bool | None = None,
    device: object = None,
    allow_downcast: bool | None = False,
    gpus: Sequence[str] = (),
    reaches: Reaches | None = None,
) -> Plan:
    """Chooses the route; moves nothing. An array of the target's framework on the requested device is returned itself.

    Args:
        copy: None: share if possible, else one copy; True: always a private copy; False: share or raise.
        device: the device of the result, as in `devices.wished`; None: the device of the array, if the target has
            arrays there.
        allow_downcast: None: False, and the caller's user cannot pass it.
        gpus: the GPUs that this process sees, by ordinal.
        reaches: whether copies from one GPU to another are direct, if the client makes them. None: the frameworks copy
            between GPUs themselves, whatever the strides are.

    Raises:
        InvalidDevice, DeviceUnavailable, UnsupportedDtype, UnsupportedArray: the target cannot hold this array.
        ZeroCopyUnavailable: `copy=False`, and a copy is needed.
    """
    wish = devices.wished(device, gpus, source.framework, target.name, target.own)
    own = source.framework == target.name
    # Independent of dtype, form and settings, because its memory is not read.
    if own and not copy and wish in (None, source.device):
        return _free(source, target, "identity", source.dtype)
    if source.refusal is not None:
        raise source.refusal.between(source.framework, target.name)
    where = _where(source, target, wish)
    dtype = _dtype_at(target, source, allow_downcast)
    _check_form(source, target, dtype)
    same = own and dtype == source.dtype and where == source.device
    reasons = () if same else _reasons(source, target, dtype, copy)
    if where != source.device:
        on_request = "" if wish is None else f" {ASKED_FOR}"
        moved = f"different_device: from {devices.named(source.device)} to {devices.named(where)}{on_request}"
        reasons = (*reasons, moved)
    if copy:
        reasons = (*reasons, COPY_REQUESTED)
    if not reasons:
        return _free(source, target, "hand_over", dtype)
    nbytes = source.nbytes * CODES[dtype][1] // source.code[1] if dtype != source.dtype else source.nbytes
    by_host = _goes_by_host(source, dtype, where, reaches)
    copies = _copies(source, target, dtype, where, by_host)
    if copies > 1:
        # One copy makes it readable or moves it to the host; another one changes its dtype, aligns it or moves it on.
        nbytes = nbytes * (copies - 1) + source.nbytes
    if _spread(source) and (by_host or where[0] != devices.CUDA):
        nbytes += (_span(source) - math.prod(source.shape)) * source.code[1] // 8
    notes = tuple(note for note in source.notes if not (own and note == DETACHED))  # its own copy keeps the gradient
    chosen = Plan(
        source.framework,
        target.name,
        devices.named(where),
        "place",
        _copied_via(source, where, by_host),
        copies,
        nbytes,
        False,
        dtype,
        reasons,
        notes,
    )
    if copy is False:
        raise ZeroCopyUnavailable(source.framework, target.name, "hand_over", "; ".join(reasons), chosen)
    return chosen


def dtype_name(dtype: object) -> str:
    """The logical name of a dtype given as a name, a NumPy, torch, JAX or TensorFlow dtype, or a Python type."""
    if isinstance(dtype, str):
        name = dtype
    elif isinstance(dtype, type):
        name = {float: "float64", int: "int64", bool: "bool", complex: "complex128"}.get(dtype, dtype.__name__)
    else:
        name = str(getattr(dtype, "name", None) or dtype)
    name = name.removeprefix("torch.")
    return "bool" if name == "bool_" else name


def combined(plans: Sequence[Plan]) -> Plan:
    """One plan for a tree of arrays: the most expensive route, the sums, every reason once. REQUIRES: at least one
    plan.
    """
    if len(plans) == 1:
        return plans[0]
    dearest = max(plans, key=lambda plan: ("identity", "hand_over", "place").index(plan.route))
    dtypes = {plan.dtype for plan in plans}
    return Plan(
        dearest.source,
        dearest.target,
        dearest.device,
        dearest.route,
        dearest.via,
        sum(plan.copies for plan in plans),
        sum(plan.copied_bytes for plan in plans),
        all(plan.zero_copy for plan in plans),
        dtypes.pop() if len(dtypes) == 1 else "",
        tuple(dict.fromkeys(reason for plan in plans for reason in plan.reasons)),
        tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
    )


def layout_of(shape: Sequence[int], strides: Sequence[int] | None) -> Layout:
    """The strictest layout that these strides (in elements) satisfy. Dimensions of size 1 are ignored."""
    if strides is None or 0 in shape:
        return "compact_c"
    dimensions = [(stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1]
    if _compact(dimensions):
        return "compact_c"
    if any(stride < 0 for stride, _ in dimensions):
        return "strided"
    if _compact(sorted(dimensions, reverse=True)):
        return "compact_permutation"
    return "nonnegative"


_LAYOUTS: Final = ("strided", "nonnegative", "compact_permutation", "compact_c")


def _compact(dimensions: Sequence[tuple[int, int]]) -> bool:
    expected = 1
    for stride, size in reversed(dimensions):
        if stride != expected:
            return False
        expected *= size
    return True


def _dtype_at(target: Caps, source: Description, allow_downcast: bool | None) -> str:
    narrowed = target.narrows.get(source.dtype)
    if narrowed is not None:
        if allow_downcast:
            return narrowed
        other = "" if allow_downcast is None else ", or pass allow_downcast=True"
        raise UnsupportedDtype(
            source.framework,
            target.name,
            "hand_over",
            f"{target.name} would narrow {source.dtype} to {narrowed}: {target.way_out}{other}",
        )
    if target.takes(source.dtype) or source.dtype in target.by_value:
        return source.dtype
    name = "a structured dtype" if source.dtype.startswith("struct:") else source.dtype
    reader = "torch" if source.dtype == "complex32" else "numpy"
    reason = f"{target.name} has no dtype for {name}: read it as {reader}, or convert the values to another dtype first"
    raise UnsupportedDtype(source.framework, target.name, "hand_over", reason)


def _where(source: Description, target: Caps, wish: Device | None) -> Device:
    """The device of the result.

    Raises:
        DeviceUnavailable: the target has no arrays there.
    """
    if wish is None:
        if source.device[0] in target.devices and (target.own is None or source.framework == target.name):
            return source.device
        wish = devices.HOST if devices.CPU in target.devices else (devices.CUDA, 0)
        if target.own is not None:
            wish = (target.own.type, target.own.current)
    if wish[0] in target.devices:
        return wish
    there = sorted(devices.named((kind, 0)).partition(":")[0] for kind in target.devices)
    reason = f"{target.name} has no arrays on {devices.named(wish)}: its CUDA and other devices here: {there}"
    raise DeviceUnavailable(source.framework, target.name, "device", reason)


def _check_form(source: Description, target: Caps, dtype: str) -> None:
    """Raises:
    UnsupportedArray: the target has no arrays of this rank or size. UnsupportedDtype: not of this dtype in this rank.
    """
    rank = len(source.shape)
    if rank > target.ndim_max:
        most = f"{target.ndim_max} dimension{'' if target.ndim_max == 1 else 's'}"
        reason = f"rank: {target.name} has at most {most}, and the array has {rank}: reshape it first"
        raise _unsupported(source, target, reason)
    if rank < target.ndim_min:
        ones = (1,) * target.ndim_min
        reason = f"rank: {target.name} has at least {target.ndim_min} dimension, and the array has {rank}: reshape it to {ones} first"
        raise _unsupported(source, target, reason)
    if rank > 1 and dtype in target.in_one_dimension:
        reason = f"rank: {target.name} has {dtype} in one dimension only: use reshape(-1) or another dtype"
        raise UnsupportedDtype(source.framework, target.name, "hand_over", reason)
    if not target.empty and 0 in source.shape:
        raise _unsupported(source, target, f"layout: it has no arrays without elements; the shape is {source.shape}")


def _copies(source: Description, target: Caps, dtype: str, where: Device, by_host: bool) -> int:
    """The number of copies of a placed array."""
    moved = where != source.device
    # A strided array on a GPU is copied to the host as it lies, and packed there.
    packed = int(_spread(source) and (by_host or where[0] != devices.CUDA))
    if dtype != source.dtype and where[0] == devices.CUDA:
        # Narrowed on the host.
        return 2 if source.device == devices.HOST and source.fill is None else 3 + packed
    if source.pull is not None:
        # Pulled memory comes from the framework's own allocator, with at most malloc's alignment.
        ready = where == devices.HOST and dtype == source.dtype and target.align_bytes <= _MALLOC_ALIGNMENT
        return 1 if ready else 2
    if target.own is not None:
        in_hand = source.fill is None and source.device == devices.HOST and dtype == source.dtype
        return 1 if in_hand else 2 + packed
    if source.fill is not None and (dtype != source.dtype or dtype in target.by_value or moved):
        return 2 + by_host
    if by_host:
        return 2 + packed
    if source.device[0] == devices.CUDA and dtype != source.dtype:
        return 2 + packed
    if source.device == devices.HOST and where[0] == devices.CUDA and source.fill is None:
        return 1 if layout_of(source.shape, source.strides) == "compact_c" else 2
    return 1 + packed


_MALLOC_ALIGNMENT: Final = 16


def _spread(source: Description) -> bool:
    """True if its elements are not compact row-major on a GPU, and the client must copy them."""
    plain = source.device[0] == devices.CUDA and source.fill is None and source.pull is None
    return plain and layout_of(source.shape, source.strides) != "compact_c"


def _span(source: Description) -> int:
    """The number of elements between its first and its last one in memory."""
    assert source.strides is not None
    return 1 + sum((size - 1) * abs(stride) for size, stride in zip(source.shape, source.strides, strict=True))


def _goes_by_host(source: Description, dtype: str, where: Device, reaches: Reaches | None) -> bool:
    """True if a copy from GPU to GPU goes through the host."""
    if source.device[0] != devices.CUDA or where[0] != devices.CUDA:
        return False
    if dtype != source.dtype:
        return True
    if reaches is None:
        return False
    return _spread(source) or (where != source.device and not reaches(source.device[1], where[1]))


def _copied_via(source: Description, where: Device, by_host: bool) -> str:
    if source.device[0] != devices.CPU:
        direct = where[0] == source.device[0] and not by_host
        return "d2d-copy" if direct else "d2h" if where[0] == devices.CPU else "d2h+h2d"
    if where[0] != devices.CPU:
        return "h2d"
    return "host-shm" if source.framework == "share" else "host"


def _reasons(source: Description, target: Caps, dtype: str, copy: bool | None) -> tuple[str, ...]:
    reasons = list(source.obstacles)
    if target.own is not None:
        # Its own upload reads any layout.
        reasons.append(f"no_foreign_memory: {target.name} can only use its own memory")
        return (*reasons, *_narrowing(source, dtype))
    if source.pull is not None:
        return (*reasons, *_narrowing(source, dtype))
    reasons.extend(_narrowing(source, dtype))
    if dtype in target.by_value:
        reasons.append(f"dtype: {target.name} accepts {dtype} by value only")
    found = layout_of(source.shape, source.strides)
    if _LAYOUTS.index(found) < _LAYOUTS.index(target.layout):
        reasons.append(f"layout: {found} strides, {target.name} accepts {target.layout}")
    elif not source.read_only and target.read_only != "immutable" and _is_repeated(source):
        reasons.append(f"layout: several elements of writable memory have one address, and {target.name} would write each of them")
    align = target.align_bytes or source.code[1] // 8
    if source.address % align and source.nbytes:
        reasons.append(f"alignment: {target.name} needs an address that is a multiple of {align}")
    on_gpu = source.device[0] == devices.CUDA
    if source.read_only and target.read_only == "dropped" and not on_gpu:
        reasons.append(f"read_only: {target.name} does not support read-only memory")
    # copy=False requests this alias.
    if copy is not False and source.changes and target.read_only == "immutable" and not on_gpu:
        why = f"the source is read-only, but {source.may_change}: a later write" if source.read_only else "a later write to the source"
        reasons.append(f"immutable_target: {why} would change a value of {target.name}")
    return tuple(reasons)


def _is_repeated(source: Description) -> bool:
    """True if several elements have one address, because a stride is 0."""
    if source.strides is None or 0 in source.shape:
        return False
    return any(not stride and size > 1 for size, stride in zip(source.shape, source.strides, strict=True))


def _narrowing(source: Description, dtype: str) -> tuple[str, ...]:
    return () if dtype == source.dtype else (f"dtype: narrowed from {source.dtype} to {dtype} (allow_downcast=True)",)


def _free(source: Description, target: Caps, route: Route, dtype: str) -> Plan:
    notes = list(source.notes) if route == "hand_over" else []
    on_gpu = source.device[0] == devices.CUDA
    if route == "hand_over" and not on_gpu and source.framework == "share" and target.private:
        notes.append("copy_on_write: private from the first write on")
    if route == "hand_over" and source.read_only and target.read_only == "dropped":
        what = f"{target.name} ignores read-only; a write faults, or changes what other readers see"
        notes.append(f"writable_alias_of_immutable: {what}")
    if route == "hand_over" and source.changes and target.read_only == "immutable":
        notes.append(f"immutable_alias_of_writable: {'a later write changes a value' if on_gpu else 'asked for by copy=False'}")
    via = _SHARED_VIA[source.kind] if source.framework == "share" else "dlpack"
    where = devices.named(source.device)
    return Plan(source.framework, target.name, where, route, via, 0, 0, True, dtype, (), tuple(notes))


_SHARED_VIA: Final = {"memfd": "host-shm", "cuda_vmm": "zero-copy-vmm", "cuda_ipc": "zero-copy-ipc", "mapped": "zero-copy-host"}


def _unsupported(source: Description, target: Caps, reason: str) -> UnsupportedArray:
    return UnsupportedArray(source.framework, target.name, "hand_over", reason)


def dtype_refused(framework: str, dtype: str, way_out: str) -> UnsupportedDtype:
    """The error for a dtype of this framework that no other one and no share has."""
    return UnsupportedDtype(framework, "any", "hand_over", f"the dtype {dtype} cannot be shared with any framework: {way_out}")


def opaque_refused(source: str, dtype: str, way_out: str) -> UnsupportedDtype:
    """The error for these dtypes: no other framework has them, and their bytes would be read as numbers of another
    meaning.
    """
    name = "structured dtypes" if dtype.startswith("struct:") else dtype
    return UnsupportedDtype(source, "dlpack", "asdlpack", f"DLPack has no {name}: {way_out}")


autograph.mark_module(__name__)
