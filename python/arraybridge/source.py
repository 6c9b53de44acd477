"""A Source is what somebody wants put or converted: an array, the adapter that reads it, and its description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from arraybridge import _core, adapters, devices
from arraybridge.adapters import generic
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.devices import Device
from arraybridge.errors import InvalidRequest
from arraybridge.planner import Caps, Description, Plan
from arraybridge.share import Share


class Source(NamedTuple):
    """An array, the adapter that reads it, and its description."""

    array: Any
    adapter: adapters.Adapter
    description: Description

    def view(self) -> _core.View:
        """The array as a View, without a copy. REQUIRES: the description has no obstacles."""
        return self.adapter.export(self.array)


def source_of(array: Any, private: bool = False) -> Source:
    """Of a framework's array, a Share, a View, or whatever else speaks an array protocol.

    Args:
        private: a Share is mapped copy-on-write, as `get` does for frameworks that do not know read-only memory.

    Raises:
        UnsupportedArray, UnsupportedDtype: nobody could read it.
    """
    if isinstance(array, Share):
        view = array.view(private=private)
        return Source(view, adapters.protocols(), generic.described(view, "share", array.kind))
    adapter = adapters.of(array)
    if adapter is adapters.protocols():
        # Read once: a capsule has nothing more to give.
        view = adapter.export(array)
        return Source(view, adapter, generic.described(view, "view"))
    return Source(array, adapter, adapter.describe(array))


def placement_of(core: _core.Core, sources: Sequence[Source]) -> _core.Placement | None:
    """Where the arrays were born, if that is one placement in broker memory that nobody has published."""
    if any(source.description.fill for source in sources):
        return None
    return core.placement_of([source.view() for source in sources])


class Purpose(NamedTuple):
    """What arrays are placed for: what is known already of the publish that will follow."""

    own: bool = False
    name: str = ""
    structure: bytes = b""
    metadata: bytes = b""


def placed(
    core: _core.Core, sources: Sequence[Source], purpose: Purpose = Purpose(), device: Device | None = None
) -> _core.Placement:
    """The arrays in broker memory after the one copy; what could not be published is refused before. `own`: in an
    arena of their own. `device`: None: where they are.

    Raises:
        InvalidRequest: they are on several devices.
    """
    found = {source.description.device for source in sources}
    if len(found) > 1:
        names = " and ".join(sorted(map(devices.named, found)))
        raise InvalidRequest(f"the arrays of one share lie on one device, not on {names}")
    if any(source.description.fill for source in sources):
        there = found.pop()
        filled = _filled(core, sources, purpose, there)
        # A framework fills memory where its arrays are.
        return filled if device in (None, there) else core.place(filled.views, *purpose, device=device)
    return core.place([source.view() for source in sources], *purpose, device=device)


def freeze(sources: Sequence[Source]) -> None:
    """Makes the NumPy arrays among them read-only: from now on their bytes are those of a published share."""
    for source in sources:
        if source.description.framework == "numpy":
            numpy_adapter.freeze(source.array)


def copied(view: _core.View, chosen: Plan, caps: Caps) -> _core.View:
    """The View that the target gets: this one, or a private copy in this process's host memory."""
    if chosen.zero_copy or (chosen.dtype in caps.by_value and view.device == devices.HOST):
        return view
    if view.dtype != chosen.dtype:
        on_host = view if view.device == devices.HOST else _core.copy_to_heap(view)
        return numpy_adapter.narrowed(on_host, chosen.dtype)
    return _core.copy_to_heap(view)


def _filled(core: _core.Core, sources: Sequence[Source], purpose: Purpose, device: Device) -> _core.Placement:
    specs = [(each.description.dtype, each.description.code, each.description.shape) for each in sources]
    placement = core.empty(specs, *purpose, device=device)
    for source, room in zip(sources, placement.views, strict=True):
        fill = source.description.fill or numpy_adapter.filler(source.view())
        fill(room)
    return placement
