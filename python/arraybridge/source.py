"""A Source is what somebody wants put or converted: an array, the adapter that reads it, and its description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from arraybridge import _core, adapters, devices
from arraybridge.adapters import generic
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.devices import Device
from arraybridge.errors import (
    BrokerError,
    InvalidRequest,
    MemoryConversionError,
    UnsupportedArray,
    exhausted_by,
    raised_by,
)
from arraybridge.planner import Caps, Description, Plan
from arraybridge.progress import Meter, Progress
from arraybridge.progress import copy as piecewise
from arraybridge.share import Share


class Source(NamedTuple):
    """An array, the adapter that reads it, and its description."""

    array: Any
    adapter: adapters.Adapter
    description: Description
    target: str  # what it is read for, as errors call it

    def view(self) -> _core.View:
        """The array as a View, without a copy. REQUIRES: the description has neither obstacles nor a refusal.

        Raises:
            UnsupportedArray: its framework gives nobody its memory, whatever it looked like.
        """
        try:
            return self.adapter.export(self.array)
        except BrokerError:
            raise
        except Exception as error:
            framework = self.description.framework
            lack = exhausted_by(error, f"{framework} to {self.target}")
            if lack is not None:
                raise lack from error
            text = f"its own framework refuses: {type(error).__name__}: {error}"
            raise UnsupportedArray(framework, self.target, "hand_over", text) from error

    def duplicate(self, chosen: Plan) -> Any:
        """A private copy by its own framework, which keeps what no View says (a tensor's gradient); None: there is no such
        thing about it, or another framework's array is wanted."""
        found = getattr(self.adapter, "duplicate", None)
        same = self.description.framework == chosen.target and chosen.route == "place"
        return found(self.array, devices.of(chosen.device)) if same and found is not None else None

    def write_to(self, room: _core.View) -> None:
        """Its values into memory of its shape and dtype, if its framework has to do that. REQUIRES: `description.fill`.

        Raises:
            MemoryConversionError: its framework does not.
        """
        assert self.description.fill is not None
        try:
            self.description.fill(room)
        except BrokerError:
            raise
        except Exception as error:
            raise raised_by(error, self.description.framework, self.target, "place") from error


def source_of(array: Any, target: str, private: bool = False) -> Source:
    """Of a framework's array, a Keras variable, a Share, a View, or whatever else speaks an array protocol. What nobody
    could read has a refusal in its description: it may be wanted as what it is.

    Args:
        target: what it is read for, as errors call it: a framework, or "share".
        private: a Share is mapped copy-on-write, as `get` does for frameworks that do not know read-only memory.
    """
    if isinstance(array, Share):
        view = array.plain_view(private)
        return Source(view, adapters.protocols(), described(view, "share", array.kind), target)
    if isinstance(array, _core.View):
        return _of_view(array.plain(), target, private)
    framework = adapters.framework_of(type(array))
    if framework is not None:
        adapter = adapters.named(framework)
        return Source(array, adapter, _asked(adapter, framework, array), target)
    adapter = adapters.protocols()
    if adapters.is_keras_variable(type(array)):
        return source_of(array.value, target, private)
    try:
        # Read once: a capsule has nothing more to give.
        view = adapter.export(array)
    except MemoryConversionError as refusal:
        alone = refusal.with_traceback(None)
        return Source(array, adapter, Description.refused(_stranger(type(array)), alone), target)
    return Source(view, adapter, described(view, "view"), target)


def _of_view(view: _core.View, target: str, private: bool) -> Source:
    # Made for one consumer, so what that one writes is seen by no other.
    own = view.copy_on_write() if private and view.read_only else None
    if own is not None:
        return Source(own, adapters.protocols(), described(own, "share"), target)
    return Source(view, adapters.protocols(), described(view, "view"), target)


def _stranger(kind: type) -> str:
    """What errors call a class of no framework: never as one of them is called."""
    return f"{kind.__module__}.{kind.__name__}" if kind.__name__ in adapters.NAMES else kind.__name__


def source_of_share(array: Any) -> Source:
    """Of what is to be carried to other processes.

    Raises:
        UnsupportedArray, UnsupportedDtype: nobody could read it.
    """
    found = source_of(array, "share")
    if found.description.refusal is not None:
        raise found.description.refusal.between(found.description.framework, "share")
    return found


def _asked(adapter: adapters.Adapter, framework: str, array: Any) -> Description:
    """What its adapter says of an array. Arrays may run code of users, which raises anything."""
    try:
        return adapter.describe(array)
    except MemoryConversionError as error:
        # Without this frame, which knows the array: who keeps the refusal would keep it, too.
        return _refused(adapter, framework, array, error.with_traceback(None))
    except BrokerError:
        raise
    except Exception as error:
        lack = exhausted_by(error, f"{type(array).__name__} cannot be read")
        if lack is not None:
            raise lack from error
        text = f"{type(array).__name__} cannot be read: {type(error).__name__}: {error}"
        unreadable = UnsupportedArray(framework, "any", "detect", text)
        unreadable.__cause__ = error.with_traceback(None)
        return _refused(adapter, framework, array, unreadable)


def _refused(adapter: adapters.Adapter, framework: str, array: Any, refusal: MemoryConversionError) -> Description:
    try:
        found = getattr(adapter, "location", _nowhere)(array)
    except Exception:
        found = None
    return Description.refused(framework, refusal, device=found or devices.UNKNOWN)


def _nowhere(array: Any) -> None:
    return None


def described(view: _core.View, framework: str, kind: str = "memfd") -> Description:
    """A View in the planner's words, a refusal of its dtype among them."""
    try:
        return generic.described(view, framework, kind)
    except MemoryConversionError as refusal:
        return Description.refused(framework, refusal.with_traceback(None))


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
    core: _core.Core,
    sources: Sequence[Source],
    purpose: Purpose = Purpose(),
    device: Device | None = None,
    progress: Progress | None = None,
) -> _core.Placement:
    """The arrays in broker memory after the one copy; what could not be published is refused before. `own`: in an
    arena of their own. `device`: None: where they are. `progress` is told of the bytes.

    Raises:
        InvalidRequest: they are on several devices.
    """
    # What nobody else can address comes by way of the host.
    found = {devices.HOST if each.description.pull else each.description.device for each in sources}
    if len(found) > 1:
        names = " and ".join(sorted(map(devices.named, found)))
        raise InvalidRequest(f"the arrays of one share lie on one device, not on {names}")
    on_host = found == {devices.HOST} and device in (None, devices.HOST)
    if any(source.description.fill for source in sources) or (progress is not None and on_host):
        there = found.pop()
        if on_host:
            return _filled(core, sources, purpose, there, progress)
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
    by_value = chosen.dtype == view.dtype_name and (chosen.dtype in caps.by_value or caps.own is not None)
    if chosen.zero_copy or (by_value and view.device == devices.HOST):
        return view
    if view.dtype_name != chosen.dtype:
        on_host = view if view.device == devices.HOST else _core.copy_to_heap(view)
        return numpy_adapter.narrowed(on_host, chosen.dtype)
    return _core.copy_to_heap(view)


def on_host(source: Source, chosen: Plan, caps: Caps) -> _core.View:
    """The View that a target in host memory gets: the array's own, or a private copy in this process. Asks no broker."""
    found = source.description
    if found.pull is not None:
        return pulled(source, chosen, caps)
    if found.fill is None:
        return copied(source.view(), chosen, caps)
    room = numpy_adapter.room(found.dtype, found.code, found.shape)
    source.write_to(room)
    by_the_way = chosen.dtype != found.dtype or chosen.dtype in caps.by_value
    return copied(room, chosen, caps) if by_the_way else room


def plain(source: Source) -> Source:
    """The same array without obstacles, if it has some on a GPU: a copy that its framework makes there, since nobody else can;
    else the array itself."""
    if source.description.device[0] != devices.CUDA or source.description.fill is None:
        return source
    return source_of(cast(adapters.MemoryAdapter, source.adapter).plain(source.array), source.target)


def pulled(source: Source, chosen: Plan, caps: Caps) -> _core.View:
    """The values of memory that no View can describe, in this process's host memory, as the target takes them.
    REQUIRES: the description says how to pull."""
    pull = source.description.pull
    assert pull is not None
    try:
        view: _core.View = pull()
    except BrokerError:
        raise
    except Exception as error:
        raise raised_by(error, source.description.framework, source.target, "place") from error
    if view.dtype_name != chosen.dtype:
        return copied(view, chosen, caps)
    return _core.copy_to_heap(view) if view.address % (caps.align_bytes or 1) else view


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
