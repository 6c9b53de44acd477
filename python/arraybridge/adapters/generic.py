"""Whatever speaks an array protocol and is no array of a known framework: Views, shares, capsules, buffers."""

from __future__ import annotations

from typing import Any, Final

from arraybridge import _core
from arraybridge.errors import BrokerError, UnsupportedArray, UnsupportedDtype
from arraybridge.planner import CODES, NAMES, OPAQUE_PREFIXES, Description

_DLPACK: Final = ("__dlpack__", "__dlpack_c_exchange_api__", "__c_dlpack_exchange_api__")


def caps() -> Any:
    raise UnsupportedArray("array", "generic", "detect", "a protocol is no target")


def describe(source: Any) -> Description:
    """REQUIRES: a View. Anything else has to become one first, because a capsule can be read only once."""
    if not isinstance(source, _core.View):
        raise UnsupportedArray(type(source).__name__, "any", "detect", "only a View can be described")
    return described(source, "view")


def export(source: Any) -> _core.View:
    """A View of it, by the first protocol that it speaks: View, DLPack, array interface (CUDA's first), buffer.

    Raises:
        UnsupportedArray: it speaks none, or refuses this array.
    """
    if isinstance(source, _core.View):
        return source
    kind = type(source)
    try:
        if speaks_dlpack(kind):
            return _core.wrap(source)
        interface = _cuda_interface(source)
        if interface is not None:
            return _core.wrap_cuda_array_interface(interface, source)
        interface = getattr(source, "__array_interface__", None) if hasattr(kind, "__array_interface__") else None
        if isinstance(interface, dict):
            return _core.wrap_array_interface(interface, source)
        if _has_buffer(source):
            return _core.wrap_buffer(source)
    except BrokerError:
        raise
    except Exception as error:
        # Producers raise any builtin, and classes that are none.
        raise UnsupportedArray(kind.__name__, "any", "asdlpack", str(error)) from error
    reason = f"{kind.__name__} speaks no array protocol; make an array of it first, with numpy.asarray for example"
    raise UnsupportedArray(kind.__name__, "any", "asdlpack", reason)


def speaks_dlpack(kind: type) -> bool:
    """Whether objects of this class can be asked for DLPack, or are it. Reads the class alone."""
    return kind.__name__ == "PyCapsule" or any(hasattr(kind, name) for name in _DLPACK)


def readable(source: object) -> bool:
    """Whether `export` knows a protocol that this object speaks. Takes nothing from it."""
    kind = type(source)
    interfaces = ("__cuda_array_interface__", "__array_interface__")
    return speaks_dlpack(kind) or any(hasattr(kind, word) for word in interfaces) or _has_buffer(source)


def _cuda_interface(source: Any) -> dict[str, Any] | None:
    # Arrays that can be on either kind of device have the attribute on one of them only.
    found = getattr(source, "__cuda_array_interface__", None) if hasattr(type(source), "__cuda_array_interface__") else None
    return found if isinstance(found, dict) else None


def _has_buffer(source: Any) -> bool:
    try:
        memoryview(source).release()
    except TypeError:
        return False
    except (BufferError, ValueError):
        pass  # it has, and says no: the extension asks again, and keeps its words
    return True


def view(view: _core.View) -> Any:
    return view


def described(view: _core.View, framework: str, kind: str = "memfd") -> Description:
    """A View in the planner's words; the name and the code of its dtype may be another process's word.

    Args:
        kind: of a share: how its memory came to this process.

    Raises:
        UnsupportedDtype: they contradict each other, or nobody knows them.
    """
    name = view.dtype or NAMES.get(view.dtype_code, "")
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
        device=view.device,
        kind=kind,
    )
