# SPDX-License-Identifier: Apache-2.0
"""A Source is an array to be converted or put: the array, the adapter that reads it, and its description."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from arraybridge import _core, adapters
from arraybridge.adapters import generic, numpy as numpy_adapter
from arraybridge.arrays import devices
from arraybridge.arrays.classes import framework_of, is_keras_variable
from arraybridge.errors import BrokerError, MemoryConversionError, UnsupportedArray, exhausted_by, raised_by
from arraybridge.planner import Caps, Description, Plan
from arraybridge.tables import containers


class Held:
    """An array whose memory belongs to another object, which maps it into this process on demand: a Share. A base
    class.
    """

    __slots__ = ()

    @property
    def kind(self) -> str:
        """How a process opens its memory, as in Description."""
        raise NotImplementedError

    def view(self) -> _core.View:
        """Its one array, for an unknown consumer."""
        raise NotImplementedError

    def _plain_view(self, private: bool) -> _core.View:
        """Its one array, for an adapter, which knows whether its framework writes. `private`: copy-on-write."""
        raise NotImplementedError


class Source(NamedTuple):
    """An array, the adapter that reads it, and its description."""

    array: Any
    adapter: adapters.Adapter
    description: Description
    target: str  # the purpose of the read, as errors name it
    on_gpu: Source | None = None  # the same array at the address that a GPU has for it, if this is its address for the host

    def view(self) -> _core.View:
        """The array as a View, without a copy. REQUIRES: the description has neither obstacles nor a refusal.

        Raises:
            UnsupportedArray: its framework refuses to export its memory, contrary to the description.
        """
        try:
            return self.adapter.export(self.array)
        except BrokerError:
            raise
        except Exception as error:
            framework = self.description.framework
            if (lack := exhausted_by(error, f"{framework} to {self.target}")) is not None:
                raise lack from error
            text = f"its framework refuses: {type(error).__name__}: {error}"
            raise UnsupportedArray(framework, self.target, "hand_over", text) from error

    def shown(self) -> _core.View:
        """As view(), for an array of another framework that shows the memory from now on."""
        made = self.view()
        if (keep := getattr(self.adapter, "keep", None)) is not None:
            keep(self.array)
        return made

    def duplicate(self, chosen: Plan) -> Any:
        """A private copy by its own framework, which keeps properties that a View lacks (a tensor's gradient); None: it
        has none, or the target is another framework.
        """
        found = getattr(self.adapter, "duplicate", None)
        same = self.description.framework == chosen.target and chosen.route == "place"
        return found(self.array, devices.of(chosen.device)) if same and found is not None else None

    def write_to(self, destination: _core.View) -> None:
        """Writes its values into memory of its shape and dtype, if only its framework can do that. REQUIRES:
        `description.fill`.

        Raises:
            MemoryConversionError: its framework fails.
        """
        assert self.description.fill is not None
        try:
            # Refuses an array of a captured stream, whose capture the copy would invalidate. CuPy exports no negative strides.
            if self.description.device[0] == devices.CUDA and min(self.description.strides or (0,), default=0) >= 0:
                self.view().complete()
            self.description.fill(destination)
        except BrokerError:
            raise
        except Exception as error:
            raise raised_by(error, self.description.framework, self.target, "place") from error


def source_of(array: Any, target: str, private: bool = False) -> Source:
    """Accepts an array of a framework, a Keras variable, a Held array (a Share), a View, or an object with an array
    protocol. An unreadable array has a refusal in its description, because it may still be returned as it is.

    Args:
        target: the purpose of the read, as errors name it: a framework, or "share".
        private: maps a Share copy-on-write, as `get` does for frameworks without read-only memory.
    """
    if isinstance(array, Held):
        view = array._plain_view(private)
        return Source(view, adapters.protocols(), described(view, "share", array.kind), target)
    if isinstance(array, _core.View):
        return _of_view(array.plain(), target, private)
    written = containers.described(array)
    if written is not None:
        return Source(array, adapters.protocols(), written, target)
    framework = framework_of(type(array))
    if framework is not None:
        adapter = adapters.named(framework)
        return Source(array, adapter, _description_of(adapter, framework, array), target)
    adapter = adapters.protocols()
    if is_keras_variable(type(array)):
        return source_of(array.value, target, private)
    try:
        # Read once, because a capsule can be read only once.
        view = adapter.export(array)
    except MemoryConversionError as refusal:
        seen = numpy_adapter.seen(array)
        if seen is not None:
            return source_of(seen, target, private)
        if (written := containers.of_protocol(array)) is not None:
            return Source(array, adapter, written, target)
        alone = refusal.with_traceback(None)
        return Source(array, adapter, Description.refused(_unknown_name(type(array)), alone), target)
    return Source(view, adapter, described(view, "view"), target)


def _of_view(view: _core.View, target: str, private: bool) -> Source:
    # A mapping for one consumer, so its writes reach no other.
    own = view.copy_on_write() if private and view.read_only else None
    if own is not None:
        return Source(own, adapters.protocols(), described(own, "share"), target)
    return Source(view, adapters.protocols(), described(view, "view"), target)


def _unknown_name(kind: type) -> str:
    """The name in errors of a class without a framework; never equal to a framework's name."""
    return f"{kind.__module__}.{kind.__name__}" if kind.__name__ in adapters.NAMES else kind.__name__


def _description_of(adapter: adapters.Adapter, framework: str, array: Any) -> Description:
    """The adapter's description of an array. Arrays may run code of users, which raises any exception."""
    try:
        return adapter.describe(array)
    except MemoryConversionError as error:
        # Drops this frame, which references the array; otherwise a stored refusal would keep it alive.
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
        found = getattr(adapter, "location", lambda _: None)(array)
    except Exception:
        found = None
    return Description.refused(framework, refusal, device=found or devices.UNKNOWN)


def described(view: _core.View, framework: str, kind: str = "memfd") -> Description:
    """A View in the planner's terms; an unsupported dtype becomes a refusal."""
    try:
        return generic.described(view, framework, kind)
    except MemoryConversionError as refusal:
        return Description.refused(framework, refusal.with_traceback(None))


def copied(view: _core.View, chosen: Plan, caps: Caps) -> _core.View:
    """The View for the target: this one, or a private copy in this process's host memory."""
    by_value = chosen.dtype == view.dtype_name and (chosen.dtype in caps.by_value or caps.own is not None)
    if chosen.zero_copy or (by_value and view.device == devices.HOST):
        return view
    narrowed = view.dtype_name != chosen.dtype
    try:
        own = view if narrowed and view.device == devices.HOST else _core.copy_to_heap(view)
    except BufferError as error:
        raise raised_by(error, chosen.source, chosen.target, chosen.route) from error
    return numpy_adapter.narrowed(own, chosen.dtype) if narrowed else own


def on_host(source: Source, chosen: Plan, caps: Caps) -> _core.View:
    """The View for a target in host memory: the array's own, or a private copy in this process. Uses no broker."""
    found = source.description
    if found.pull is not None:
        return pulled(source, chosen, caps)
    if found.fill is None:
        return copied(source.view(), chosen, caps)
    destination = numpy_adapter.empty_view(found.dtype, found.code, found.shape)
    source.write_to(destination)
    by_the_way = chosen.dtype != found.dtype or chosen.dtype in caps.by_value
    return copied(destination, chosen, caps) if by_the_way else destination


def plain(source: Source) -> Source:
    """The same array without obstacles, if it has some on a GPU: a copy by its framework, since only it can read the
    array; otherwise the array itself.
    """
    if source.description.device[0] != devices.CUDA or source.description.fill is None:
        return source
    return source_of(cast(adapters.MemoryAdapter, source.adapter).plain(source.array), source.target)


def pulled(source: Source, chosen: Plan, caps: Caps) -> _core.View:
    """The values of memory that no View can describe, in this process's host memory, in the form for the target.
    REQUIRES: the description has `pull`.
    """
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
