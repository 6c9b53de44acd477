# SPDX-License-Identifier: Apache-2.0
"""Shares in host memory, and arrays that lie in them, as arrays of a GPU, and the reverse, without a copy.

A GPU that has one memory with the host (GB10, Grace, Jetson) reads a share where it lies; one on PCIe does so if the
caller asks, because each read then crosses the bus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from arraybridge import _core, adapters
from arraybridge.arrays import devices
from arraybridge.conversion.source import Source, described
from arraybridge.errors import DeviceUnavailable, InvalidRequest, raised_by
from arraybridge.planner import Caps, Description, Plan

_BASES_MAX: Final = 8  # of an array of NumPy that is a part of a part
ONE_MEMORY: Final = "one_memory: {gpu} reads the share in the host's memory, which is its own, too"
MAPPED: Final = "mapped: {gpu} reads the share in the host's memory over its bus (asked for)"


class InPlace(NamedTuple):
    """The wish that a GPU reads shares in host memory where they lie."""

    gpu: int
    asked: bool  # by mapped=True: a copy is an error
    note: str  # of plans


class _Reads(Protocol):
    """The part of a Wanted that `planned` and `shown` need."""

    @property
    def in_place(self) -> InPlace | None: ...
    @property
    def device(self) -> object: ...
    @property
    def copy(self) -> bool | None: ...
    @property
    def via(self) -> str | None: ...
    @property
    def caps(self) -> Caps: ...
    def planned(self, described: Description, /) -> Plan: ...


def wished(mapped: bool | None, where: devices.Device | None, copy: bool | None, caps: Caps) -> InPlace | None:
    """The wish of a call that reads shares; None: an array that lies on the host is copied to the GPU.

    Args:
        mapped: True: in place, or an error; False: not in place; None: in place if host and GPU have one memory.
        where: the device that the caller named; None: none, and a framework that has GPUs alone means the planner's.

    Raises:
        InvalidRequest: the arguments contradict each other. DeviceUnavailable: the driver or the framework cannot do it.
    """
    where = _meant(where, caps)
    check(mapped, where, copy)
    if where is None or where[0] != devices.CUDA or copy or mapped is False or devices.CUDA not in caps.devices:
        return None  # the plan refuses a framework without arrays on this device
    reach, why = _core.host_reach(where[1])
    if mapped and reach == "none":
        reason = f"{devices.named(where)} cannot read host memory in place: {why}. Leave out mapped=True for a copy on the GPU"
        raise DeviceUnavailable("share", caps.name, "map", reason)
    note = {"one_memory": ONE_MEMORY, "mapped": MAPPED if mapped else ""}.get(reach, "")
    return InPlace(where[1], mapped is True, note.format(gpu=devices.named(where))) if note else None


def _has_gpus_alone(caps: Caps) -> bool:
    return devices.CUDA in caps.devices and devices.CPU not in caps.devices


def _meant(where: devices.Device | None, caps: Caps) -> devices.Device | None:
    return (devices.CUDA, 0) if where is None and _has_gpus_alone(caps) and _core.gpus() else where


def check(mapped: object, where: devices.Device | None, copy: bool | None) -> None:
    """Raises:
    InvalidRequest: the arguments contradict each other, or `mapped` is no wish.
    """
    if mapped is not None and not isinstance(mapped, bool):
        raise InvalidRequest(f"mapped must be True, False or None, not {mapped!r}")
    if mapped and (where is None or where[0] != devices.CUDA):
        raise InvalidRequest('mapped=True is for the GPU that reads: pass device="cuda:0", or another one')
    if mapped and copy:
        raise InvalidRequest("copy=True and mapped=True contradict each other: pass one of the two")


def planned(view: _core.View, kind: str, reads: _Reads, target: str) -> tuple[_core.View, Plan]:
    """The View of a share's array that its reader gets, and how it gets it. `kind`: how the share's memory is opened.

    Raises:
        DeviceUnavailable: the reader asked for mapped memory, and the driver refuses. Errors of `reads.planned`.
    """
    there = reads.in_place
    if there is None or view.device != devices.HOST:
        return view, reads.planned(described(view, "share", kind))
    try:
        shown = _core.on_gpu(view, there.gpu)
    except _core.StatusError as status:
        reason = f"{devices.named((devices.CUDA, there.gpu))} does not read it in place: {status.message}"
        if there.asked:
            raise DeviceUnavailable("share", target, "map", reason) from status
        found = described(view, "share", kind)
        return view, reads.planned(replace(found, notes=(*found.notes, f"not_mapped: {reason}")))
    found = described(shown, "share", "mapped")
    chosen = reads.planned(replace(found, notes=(*found.notes, there.note)))
    # An array that needs a copy all the same is copied from the host.
    return (shown, chosen) if chosen.zero_copy else (view, reads.planned(described(view, "share", kind)))


def shown(source: Source, reads: _Reads) -> Source:
    """The array of the wished GPU that a read-only array of this process is, because it lies in a share and host and GPU have one
    memory; other arrays, and those that need a copy all the same, as they are.
    """
    there = _wish_of(source, reads)
    if there is None:
        return source
    try:
        view = _core.on_gpu(_of_share(source), there.gpu)
    except _core.StatusError:
        return source  # no registration: it is copied
    mapped = described(view, "share", "mapped")
    mapped = replace(mapped, notes=(*mapped.notes, there.note))
    return Source(view, adapters.protocols(), mapped, source.target) if reads.planned(mapped).zero_copy else source


def foreseen(source: Source, reads: _Reads) -> Description:
    """The description of the array that `shown` would give, as long as the driver does not refuse. Registers nothing."""
    there = _wish_of(source, reads)
    if there is None:
        return source.description
    mapped = described(_of_share(source), "share", "mapped")
    mapped = replace(mapped, device=(devices.CUDA, there.gpu), notes=(*mapped.notes, there.note))
    return mapped if reads.planned(mapped).zero_copy else source.description


def _of_share(source: Source) -> _core.View:
    return source.view().protected(origin=_share_of(source.array)).plain()


def _wish_of(source: Source, reads: _Reads) -> InPlace | None:
    """The wish of a conversion, if the array lies in a share that GPUs can show."""
    if reads.via is not None or (reads.device is None and not _has_gpus_alone(reads.caps)):
        return None
    found = source.description
    if not _is_readable(found) or _share_of(source.array) is None or not _core.is_shown_by_gpus(_of_share(source)):
        return None  # a mapping of its own, among others
    where = devices.wished(reads.device, _core.gpus(), found.framework, source.target, reads.caps.own)
    return wished(None, where, reads.copy, reads.caps)


def _is_readable(found: Description) -> bool:
    """Whether it is host memory that nothing in this process writes or rearranges."""
    return found.device == devices.HOST and found.read_only and found.refusal is None and not found.obstacles and found.fill is None


def _share_of(array: object) -> _core.View | None:
    """The View of a share that an array of NumPy reads, or that it is itself."""
    for _ in range(_BASES_MAX):
        if array is None or isinstance(array, _core.View):
            return array
        array = getattr(array, "obj" if isinstance(array, memoryview) else "base", None)
    return None


def on_host(source: Source) -> Source:
    """The array of host memory that an array of a GPU is, after the work of its producer; other arrays as they are. It is put
    as host memory, by one copy at most, and what `get` has mapped is the share itself.

    Raises:
        MemoryConversionError: its producer failed, or its stream is being captured into a graph.
    """
    found = source.description
    if found.device[0] != devices.CUDA:
        return source
    plain = found.refusal is None and not found.obstacles and min(found.strides or (0,), default=0) >= 0
    if not plain or not found.address or not _core.lies_on_host(found.address, found.device[1]):
        return source
    try:
        view = _core.on_host(source.view())
    except _core.StatusError as status:
        raise raised_by(BufferError(status.message), found.framework, source.target, "hand_over") from status
    return source if view is None else Source(view, adapters.protocols(), described(view, "view"), source.target, source)


def together(sources: Sequence[Source]) -> list[Source]:
    """The arrays of one share, which lie on one device: beside memory of a GPU, those that `on_host` has moved are the GPU's."""
    some_on_gpu = any(each.description.device[0] == devices.CUDA for each in sources)
    return [(each.on_gpu if some_on_gpu else None) or each for each in sources]
