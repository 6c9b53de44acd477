"""asdlpack: any array-like as a View, which every framework's from_dlpack accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arraybridge import adapters
from arraybridge.errors import UnsupportedArray
from arraybridge.planner import OPAQUE_PREFIXES, opaque_refused

if TYPE_CHECKING:
    from arraybridge._core import View


def asdlpack(obj: Any, *, copy: bool = False) -> View:
    """A View of `obj`: our View or Share, a framework's array, a Keras variable, a DLPack producer or capsule, an array interface, a buffer.

    Shape, strides and dtype are those of `obj`. Nothing is copied unless `copy` is set (that copy lies in host memory, also
    of an array on a GPU), except `bytes`: a consumer that
    ignores read-only flags would corrupt the interpreter (`memoryview(b)` shares).

    Raises:
        UnsupportedArray: (a TypeError and a BufferError) it speaks none of these, or this array cannot be handed on.
        UnsupportedDtype: DLPack cannot say its dtype.
    """
    from arraybridge import _core  # loads the extension

    view = _view_of(obj)
    if view.dtype.startswith(OPAQUE_PREFIXES):
        raise opaque_refused(type(obj).__name__, view.dtype, "pass array.view() of a dtype that it has")
    return _core.copy_to_heap(view) if copy or isinstance(obj, bytes) else view


def _view_of(obj: Any) -> View:
    from arraybridge.share import Share
    from arraybridge.source import source_of

    if isinstance(obj, Share):
        return obj.view(private=True)
    if adapters.framework_of(type(obj)) is None and not adapters.is_keras_variable(type(obj)):
        return adapters.protocols().export(obj)
    source = source_of(obj, "dlpack")
    described = source.description
    if described.refusal is not None:
        raise described.refusal.between(described.framework, "dlpack")
    if described.obstacles:
        raise UnsupportedArray(described.framework, "dlpack", "asdlpack", "; ".join(described.obstacles))
    return source.view()
