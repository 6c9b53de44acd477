# SPDX-License-Identifier: Apache-2.0
"""Objects with an array protocol that are not arrays of a known framework: Views, shares, capsules, buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from arraybridge import _core
from arraybridge.arrays import interfaces
from arraybridge.arrays.classes import in_place_of, is_sparse
from arraybridge.errors import BrokerError, UnsupportedArray, UnsupportedDtype, exhausted_by
from arraybridge.planner import CODES, NAMES, OPAQUE_PREFIXES, PACKED, Description, dtype_refused

_Reader = Callable[[Any], _core.View | None]  # None: the object does not support the protocol
_DENSE: Final = "a sparse array is several arrays: pass each of them, or the dense array (toarray() or todense())"
_POSSIBLE: Final = (
    "pass an array (numpy.asarray makes one of numbers), or an object with DLPack, an array interface or a buffer;"
    " a tree may also contain numbers, text, bytes, None, members of enums, dates and times"
)
_DLPACK: Final = ("__dlpack__", "__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__")


def caps() -> Any:
    raise UnsupportedArray("array", "generic", "detect", "a protocol is not a target; name a framework")


def describe(source: Any) -> Description:
    """REQUIRES: a View. Other objects are exported first, because a capsule can be read only once."""
    if not isinstance(source, _core.View):
        raise UnsupportedArray(type(source).__name__, "any", "detect", "only a View can be described")
    return described(source, "view")


def export(source: Any) -> _core.View:
    """A View of it, by the first protocol that it supports: View, DLPack, array interface (CUDA's first), buffer.

    Raises:
        UnsupportedArray: it supports none, or its protocol refuses this array.
    """
    return source if isinstance(source, _core.View) else _read(source, _READERS)


def export_by(source: Any, protocol: str) -> _core.View:
    """A View of it by this protocol: "dlpack", "buffer", or one of `interfaces`.

    Raises:
        UnsupportedArray: it does not support the protocol, or refuses this array.
    """
    return _read(source, {protocol: _READERS[protocol]})


def _read(source: Any, readers: Mapping[str, _Reader]) -> _core.View:
    kind = type(source)
    try:
        for read in readers.values():
            view = read(source)
            if view is not None:
                return view
    except BrokerError:
        raise
    except Exception as error:
        # Producers raise any built-in exception, and classes that are not exceptions of DLPack.
        lack = exhausted_by(error, f"{kind.__name__} cannot be read")
        if lack is not None:
            raise lack from error
        raise UnsupportedArray(kind.__name__, "any", "asdlpack", str(error)) from error
    instead = in_place_of(kind) if len(readers) > 1 else None
    if instead is not None:
        raise UnsupportedArray(kind.__name__, "any", "asdlpack", instead)
    what = "no array protocol" if len(readers) > 1 else f"no {next(iter(readers))}"
    advice = _DENSE if is_sparse(kind) else _POSSIBLE
    raise UnsupportedArray(kind.__name__, "any", "asdlpack", f"{kind.__name__} supports {what}; {advice}")


def _by_dlpack(source: Any) -> _core.View | None:
    return _core.wrap(source) if speaks_dlpack(source) else None


def _by_cuda_interface(source: Any) -> _core.View | None:
    interface = interfaces.of_gpu(source)
    return None if interface is None else _core.wrap_cuda_array_interface(interface, source)


def _by_buffer(source: Any) -> _core.View | None:
    return _core.wrap_buffer(source) if _has_buffer(source) else None


def _by_interface(form: Callable[[object], interfaces.Interface | None]) -> _Reader:
    def read(source: Any) -> _core.View | None:
        interface = form(source)
        return None if interface is None else _core.wrap_array_interface(interface, source)

    return read


# In the order of preference.
_READERS: Final[Mapping[str, _Reader]] = {
    "dlpack": _by_dlpack,
    interfaces.CUDA: _by_cuda_interface,
    **{name: _by_interface(form) for name, form in interfaces.FORMS.items()},
    "buffer": _by_buffer,
}


def speaks_dlpack(source: object) -> bool:
    """True if an object may support DLPack or is a capsule. Reads its class and its own attributes."""
    kind = type(source)
    if kind.__name__ == "PyCapsule" or any(hasattr(kind, name) for name in _DLPACK):
        return True
    own = getattr(source, "__dict__", None) if not isinstance(source, type) else None
    return isinstance(own, dict) and _DLPACK[0] in own


def readable(source: object) -> bool:
    """True if `export` knows a protocol that this object supports. Does not consume it."""
    return speaks_dlpack(source) or interfaces.speaks(source) or _has_buffer(source)


def _has_buffer(source: Any) -> bool:
    try:
        memoryview(source).release()
    except TypeError:
        return False
    except (BufferError, ValueError):
        pass  # it has DLPack and refuses: `export` repeats the call and keeps the message
    return True


def view(view: _core.View) -> Any:
    return view


def described(view: _core.View, framework: str, kind: str = "memfd") -> Description:
    """A View in the planner's terms; the name and the code of its dtype may come from another process.

    Args:
        kind: of a share: how this process opened its memory.

    Raises:
        UnsupportedDtype: name and code contradict each other, or are unknown.
    """
    if view.dtype_name in PACKED:
        raise dtype_refused(framework, view.dtype_name, "use its bytes, view.as_bytes()")
    name = view.dtype_name or NAMES.get(view.dtype_code, "")
    if CODES.get(name, view.dtype_code) != view.dtype_code or not (name in CODES or name.startswith(OPAQUE_PREFIXES)):
        raise UnsupportedDtype(framework, "any", "hand_over", f"unknown dtype {name[:64]!r} of code {view.dtype_code}")
    return Description(
        framework=framework,
        dtype=name,
        code=view.dtype_code,
        shape=view.shape,
        strides=None if view.compact else view.strides,
        address=view.address,
        read_only=view.read_only,
        may_change="" if view.constant or not view.read_only else "it is unknown whether its owner writes to it",
        device=view.device,
        kind=kind,
    )
