# SPDX-License-Identifier: Apache-2.0
"""Placing: the one copy of an array into broker memory, from where it is published or sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arraybridge import _core, adapters
from arraybridge.adapters import born, ensure_module, numpy as numpy_adapter
from arraybridge.arrays import devices
from arraybridge.arrays.classes import framework_of
from arraybridge.arrays.devices import Device
from arraybridge.broker import one_memory
from arraybridge.broker.progress import PIECE, Meter, Progress, copy as piecewise
from arraybridge.conversion.source import Source, plain, source_of
from arraybridge.errors import InvalidRequest, raised_by
from arraybridge.planner import PACKED


def source_of_share(array: Any) -> Source:
    """The Source of an array that is published or sent.

    Raises:
        UnsupportedArray, UnsupportedDtype: no framework could read it.
    """
    found = one_memory.on_host(source_of(array, "share"))
    if found.description.refusal is not None:
        raise found.description.refusal.between(found.description.framework, "share")
    return found


def packed_parts(array: Any) -> tuple[Any, str, tuple[int, ...]] | None:
    """The bytes of an array of planner.PACKED, their dtype, and its shape in elements; None: it is another array."""
    if isinstance(array, _core.View):
        return (array.as_bytes(), array.dtype_name, array.shape) if array.dtype_name in PACKED else None
    framework = framework_of(type(array))
    unpacked = getattr(adapters.named(framework), "unpacked", None) if framework else None
    parts: tuple[Any, str, tuple[int, ...]] | None = unpacked(array) if unpacked is not None else None
    return parts


def placement_of(core: _core.Core, sources: Sequence[Source]) -> _core.Placement | None:
    """The unpublished placement in broker memory in which all these arrays were born, or the part of a share of this
    namespace in which they lie; None: there is neither.
    """
    if any(source.description.fill for source in sources):
        return None
    return core.placement_of([source.view() for source in sources])


def device_of(sources: Sequence[Source]) -> Device:
    """The one device from which the arrays are copied: the host, if this process alone can address their memory.

    Raises:
        InvalidRequest: they are on several devices.
    """
    found = {devices.HOST if each.description.pull else each.description.device for each in sources}
    if len(found) > 1:
        names = " and ".join(sorted(map(devices.named, found)))
        raise InvalidRequest(f"the arrays of one share must lie on one device, not on {names}")
    return found.pop()


def placed(
    core: _core.Core,
    sources: Sequence[Source],
    name: str = "",
    options: _core.PutOptions | None = None,
    device: Device | None = None,
    progress: Progress | None = None,
) -> _core.Placement:
    """The arrays in broker memory after the one copy.

    Args:
        name, options: those of the publish that will follow: a share that it would refuse is refused before the copy.
        device: None: where they are.
        progress: is told of the bytes.

    Raises:
        InvalidRequest: they lie on several devices.
    """
    there = device_of(sources)
    on_host = there == devices.HOST and device in (None, devices.HOST)
    if any(source.description.fill for source in sources) or (progress is not None and on_host):
        specs = [(each.description.dtype, each.description.code, each.description.shape) for each in sources]
        placement = core.empty(specs, name, options, device=there)
        fill(placement.views, sources, progress if on_host else None)
        # A framework fills memory where its arrays are.
        return placement if device in (None, there) else core.place(placement.views, name, options, device=device)
    return core.place([source.view() for source in sources], name, options, device=device)


def freeze(sources: Sequence[Source]) -> None:
    """Keeps the arrays as they are: their bytes are now those of a published share."""
    for source in sources:
        born.freeze(source.description.framework, source.array)


def fill(destinations: Sequence[_core.View], sources: Sequence[Source], progress: Progress | None) -> None:
    """Copies each array into its destination, a writable View of its dtype and shape. Both may lie on the host or on any GPU.

    Raises:
        MemoryConversionError: a framework or the driver fails.
    """
    meter = Meter(progress or _no_progress, sum(each.description.nbytes for each in sources))
    uploads = _Uploads(meter)
    for source, destination in zip(sources, destinations, strict=True):
        if source.description.fill is not None and device_of([source]) == destination.device:
            source.write_to(destination)
            meter.moved(destination.nbytes)
            continue
        values = readable(source)
        if destination.device[0] == devices.CUDA:
            uploads.add(values, destination)
        elif values.device != devices.HOST or progress is None:
            numpy_adapter.filler(values if values.device == devices.HOST else _core.copy_to_heap(values))(destination)
            meter.moved(destination.nbytes)
        else:
            piecewise(values, destination, meter)
    uploads.make()


def bytes_of(view: _core.View) -> Any:
    """The bytes of an array of any device, compact and row-major: an ndarray of uint8, of its own memory where that is so."""
    here = view if view.device == devices.HOST else _core.copy_to_heap(view)
    return ensure_module("numpy").ascontiguousarray(numpy_adapter.bits_of(here)).reshape(-1).view("u1")


def readable(source: Source) -> _core.View:
    """Its values, as a View that can be copied elsewhere: of its own memory, or of a copy that its framework makes.

    Raises:
        MemoryConversionError: the framework fails.
    """
    found = source.description
    if found.fill is None:
        return source.view()
    if found.device[0] == devices.CUDA:
        return plain(source).view()
    destination = numpy_adapter.empty_view(found.dtype, found.code, found.shape)
    source.write_to(destination)
    return destination


class _Uploads:
    """Copies to GPUs that are executed together, at most PIECE bytes or one array at a time."""

    def __init__(self, meter: Meter) -> None:
        self._meter, self._bytes = meter, 0
        self._sources: list[_core.View] = []
        self._destinations: list[_core.View] = []

    def add(self, source: _core.View, destination: _core.View) -> None:
        if self._bytes + destination.nbytes > PIECE:
            self.make()
        self._sources.append(source)
        self._destinations.append(destination)
        self._bytes += destination.nbytes

    def make(self) -> None:
        sources, destinations, moved = self._sources, self._destinations, self._bytes
        self._sources, self._destinations, self._bytes = [], [], 0
        if not moved:
            return
        try:
            _core.copy_to_gpus(sources, destinations)
        except BufferError as error:
            raise raised_by(error, "array", "share", "place") from error
        self._meter.moved(moved)


def _no_progress(done: int, total: int) -> None:
    pass
