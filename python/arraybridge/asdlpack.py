# SPDX-License-Identifier: Apache-2.0
"""asdlpack: a View of any array-like object, which every framework's from_dlpack accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from arraybridge import adapters, autograph
from arraybridge.arrays.classes import framework_of, is_keras_variable
from arraybridge.errors import UnsupportedArray
from arraybridge.planner import DETACHED, OPAQUE_PREFIXES, opaque_refused

if TYPE_CHECKING:
    from arraybridge._core import View

_BYTE_ORDER: Final = "byte_order: DLPack supports only the byte order of the machine"
# Words of the obstacles to a View, and what to pass in place of the array.
_WAYS_OUT: Final = {
    "byte_order": 'array.astype(array.dtype.newbyteorder("="))',
    "strides": "array.copy()",
    "pending conjugate": "tensor.resolve_conj().resolve_neg()",
    "single bits": 'array.cast("uint8")',
    "chunks": "array.combine_chunks()",
}


def asdlpack(obj: Any, *, copy: bool = False) -> View:
    """A View of `obj`: our View or Share, a framework's array, a Keras variable, a DLPack producer or capsule, an array
    interface in any form, also as an attribute of a single object, or a buffer.

    Shape, strides and dtype are those of `obj`. This function copies only if `copy` is set (the copy lies in host
    memory, also for an array on a GPU), or if `obj` is `bytes` (`memoryview(b)` shares).

    The View can be passed to every `from_dlpack` that accepts an array of this dtype and layout, by the old protocol
    and the new one: `numpy`, `torch`, `jax` and `cupy` take the View itself, TensorFlow the capsule
    `view.__dlpack__()`, aligned to 64 bytes. No write through DLPack reaches read-only memory. For a share, and for an
    ndarray that lies in one, each consumer gets a copy-on-write mapping of its own. For other memory it gets a copy,
    which is counted and reported by a CopyWarning; `from_dlpack(view, copy=False)` raises ZeroCopyUnavailable then.
    NumPy respects the read-only flag and shares such memory. `view.for_immutable_consumer()` promises that the consumer
    does not write (JAX, TensorFlow), and shares it, too.

    Raises:
        UnsupportedArray: (a TypeError and a BufferError) it supports none of these, or this array cannot be shared: for
            example a tensor that requires grad, which must be detached first.
        UnsupportedDtype: DLPack lacks its dtype.

    Example:
        >>> import torch
        >>> torch.from_dlpack(arraybridge.asdlpack(memoryview(bytearray(b"abc"))))
        tensor([97, 98, 99], dtype=torch.uint8)
    """
    from arraybridge import _core  # loads the extension

    view = _view_of(obj)
    _check_dtype(view.dtype_name, type(obj).__name__)
    return _core.copy_to_heap(view) if copy or isinstance(obj, bytes) else view


def _check_dtype(dtype: str, source: str) -> None:
    """Raises:
    UnsupportedDtype: DLPack lacks it, and its bytes would be read as numbers of another meaning.
    """
    if dtype.startswith(OPAQUE_PREFIXES):
        fields = dtype.startswith("struct:")
        raise opaque_refused(source, dtype, "pass a field, array[name].copy()" if fields else 'pass array.view("int64")')


def by_protocol(obj: Any, protocol: str) -> View:
    """A View of `obj` by one protocol: "dlpack", "buffer", or a name of `arraybridge.arrays.interfaces`. No write through
    DLPack reaches read-only memory, as with `asdlpack`.

    Raises:
        UnsupportedArray: (a TypeError and a BufferError) it does not support the protocol, or this array cannot be
            shared.
    """
    from arraybridge import _core, exports
    from arraybridge.adapters import generic

    if framework_of(type(obj)) is not None:
        checked = _view_of(obj)  # checked here, because its protocols drop masks, and negative and conjugate bits
        if protocol == "dlpack":
            return checked
    view = generic.export_by(obj, protocol)
    return _core.copy_to_heap(view) if isinstance(obj, bytes) else exports.protected(view, obj)


def _view_of(obj: Any) -> View:
    from arraybridge import _core, exports
    from arraybridge.adapters import numpy as numpy_adapter
    from arraybridge.conversion.source import Held, source_of

    if isinstance(obj, _core.View):
        return obj
    if isinstance(obj, Held):
        return obj.view()
    if framework_of(type(obj)) is None and not is_keras_variable(type(obj)):
        try:
            return exports.protected(adapters.protocols().export(obj), obj)
        except UnsupportedArray:
            seen = numpy_adapter.seen(obj)
            if seen is None:
                raise
            return _view_of(seen)
    source = source_of(obj, "dlpack")
    described = source.description
    if described.refusal is not None:
        raise described.refusal.between(described.framework, "dlpack")
    if described.obstacles:
        _check_dtype(described.dtype, described.framework)
    ways_out = [way for words, way in _WAYS_OUT.items() if any(words in each for each in described.obstacles)]
    reasons = [_BYTE_ORDER if each.startswith("byte_order") else each for each in described.obstacles]
    if DETACHED in described.notes:
        reasons.insert(0, "the tensor requires grad, which DLPack cannot express")
        ways_out = [way.replace("tensor", "tensor.detach()", 1) for way in ways_out] or ["tensor.detach()"]
    if reasons:
        way_out = f": pass {ways_out[0]}" if ways_out else ""
        raise UnsupportedArray(described.framework, "dlpack", "asdlpack", f"{'; '.join(reasons)}{way_out}")
    return exports.protected(source.shown(), source.array, not described.may_change)


autograph.mark_module(__name__)
