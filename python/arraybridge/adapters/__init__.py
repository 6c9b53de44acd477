"""The adapter table: what a framework is to this package. An adapter is a module with the members of Adapter.

A framework is imported and called in its own adapter alone, inside functions, when the user asked for it or has an
array of it.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from arraybridge.detect import SUPPORTED_MEMORY_TYPES, memory_type_of
from arraybridge.errors import FrameworkNotAvailable, InvalidMemoryType
from arraybridge.planner import Caps, Description

if TYPE_CHECKING:
    from arraybridge._core import View

NAMES: Final = ("numpy", "torch", "tensorflow", "jax", "cupy")


class Adapter(Protocol):
    """What one framework is."""

    def caps(self) -> Caps:
        """What it takes, as it is configured now. Imports the framework."""

    def describe(self, array: Any, /) -> Description:
        """Its array in the planner's words. UnsupportedArray or UnsupportedDtype for what has no plain memory."""

    def export(self, array: Any, /) -> View:
        """A View of its array. REQUIRES: describe() named no obstacle. Never copies."""

    def view(self, view: View, /) -> Any:
        """Its array over the View's memory. REQUIRES: a plan said so. Never copies, but for `Caps.by_value`."""


_loaded: dict[str, Adapter] = {}


def named(framework: str) -> Adapter:
    """The adapter of this name (or MemoryType).

    Raises:
        InvalidMemoryType: there is none.
    """
    if not isinstance(framework, str):
        kind = type(framework).__name__
        raise InvalidMemoryType("array", kind, "detect", f"a memory type is named by a str, not {kind}; {list(NAMES)}")
    found = _loaded.get(framework)
    if found is not None:
        return found
    if framework not in NAMES:
        known = "is not supported yet" if framework in SUPPORTED_MEMORY_TYPES else "is no memory type"
        raise InvalidMemoryType("array", str(framework), "detect", f"{framework!r} {known}; use one of {list(NAMES)}")
    found = cast(Adapter, importlib.import_module(f"arraybridge.adapters.{framework}"))
    return _loaded.setdefault(str(framework), found)


def of(array: object) -> Adapter:
    """The adapter of this array's framework; the generic one for whatever else speaks an array protocol."""
    framework = memory_type_of(type(array))
    if framework is not None and framework in NAMES:
        return named(framework)
    return protocols()


def protocols() -> Adapter:
    """The adapter of protocols: a source only."""
    from arraybridge.adapters import generic as found

    return cast(Adapter, found)


def ensure_module(name: str, minimum: tuple[int, int] = (0, 0)) -> ModuleType:
    """The module, imported.

    Raises:
        FrameworkNotAvailable: it cannot be imported (chained to the reason), or is older than `minimum`.
    """
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise FrameworkNotAvailable("array", name, "detect", f"{name} is not available: {error}") from error
    version = str(getattr(module, "__version__", "0.0"))
    if _numbers(version) < minimum:
        needed = ".".join(map(str, minimum))
        raise FrameworkNotAvailable("array", name, "detect", f"{name} {needed} is not available: this is {version}")
    return module


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
