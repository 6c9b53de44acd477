"""Placing: the one copy of an array into broker memory, from where it is published or sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from arraybridge import _core, devices
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.broker.progress import Meter, Progress
from arraybridge.broker.progress import copy as piecewise
from arraybridge.convert.source import Source, source_of
from arraybridge.devices import Device
from arraybridge.errors import InvalidRequest


def source_of_share(array: Any) -> Source:
    """The Source of an array that is published or sent.

    Raises:
        UnsupportedArray, UnsupportedDtype: no framework could read it.
    """
    found = source_of(array, "share")
    if found.description.refusal is not None:
        raise found.description.refusal.between(found.description.framework, "share")
    return found


def placement_of(core: _core.Core, sources: Sequence[Source]) -> _core.Placement | None:
    """The unpublished placement in broker memory in which all these arrays were born; None: there is none."""
    if any(source.description.fill for source in sources):
        return None
    return core.placement_of([source.view() for source in sources])


class Purpose(NamedTuple):
    """The known arguments of the publish that will follow."""

    own: bool = False
    name: str = ""
    structure: bytes = b""
    metadata: bytes = b""


def placed(
    core: _core.Core,
    sources: Sequence[Source],
    purpose: Purpose = Purpose(),
    device: Device | None = None,
    progress: Progress | None = None,
) -> _core.Placement:
    """Copies the arrays into broker memory; refuses first what could not be published. `own`: in an arena of their own.
    `device`: None: the device of the arrays. `progress` is called with the bytes.

    Raises:
        InvalidRequest: they lie on several devices.
    """
    # Memory that only its framework can address is copied through the host.
    found = {devices.HOST if each.description.pull else each.description.device for each in sources}
    if len(found) > 1:
        names = " and ".join(sorted(map(devices.named, found)))
        raise InvalidRequest(f"the arrays of one share must lie on one device, not on {names}")
    on_host = found == {devices.HOST} and device in (None, devices.HOST)
    if any(source.description.fill for source in sources) or (progress is not None and on_host):
        there = found.pop()
        if on_host:
            return _filled(core, sources, purpose, there, progress)
        filled = _filled(core, sources, purpose, there)
        # A framework fills memory on the device of its arrays.
        return filled if device in (None, there) else core.place(filled.views, *purpose, device=device)
    return core.place([source.view() for source in sources], *purpose, device=device)


def freeze(sources: Sequence[Source]) -> None:
    """Makes the NumPy arrays among them read-only: their bytes are now those of a published share."""
    for source in sources:
        if source.description.framework == "numpy":
            numpy_adapter.freeze(source.array)


def _filled(
    core: _core.Core, sources: Sequence[Source], purpose: Purpose, device: Device, progress: Progress | None = None
) -> _core.Placement:
    specs = [(each.description.dtype, each.description.code, each.description.shape) for each in sources]
    placement = core.empty(specs, *purpose, device=device)
    meter = None if progress is None else Meter(progress, sum(each.description.nbytes for each in sources))
    for source, room in zip(sources, placement.views, strict=True):
        fill = source.description.fill
        if fill is None and meter is not None:
            piecewise(source.view(), room, meter)
            continue
        if fill is None:
            numpy_adapter.filler(source.view())(room)
        else:
            source.write_to(room)
        if meter is not None:
            meter.moved(room.nbytes)
    return placement
