# SPDX-License-Identifier: Apache-2.0
"""The adapter table. An adapter is a module with the members of Adapter; it represents one framework.

Only its adapter imports and calls a framework, inside functions, when the user has asked for it or has an array of it.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, Union, cast

from arraybridge import autograph
from arraybridge.arrays.classes import (
    FRAMEWORKS,
    framework_of,
    is_keras_variable,
    memory_type_named,
    memory_type_of,
    unknown_framework,
)
from arraybridge.arrays.devices import CUDA, HOST, named as named_device
from arraybridge.errors import (
    DeviceUnavailable,
    FrameworkNotAvailable,
    MemoryConversionError,
    SourceTypeMismatch,
    exhausted_by,
)
from arraybridge.planner import Caps, Description

if TYPE_CHECKING:
    from arraybridge._core import View
    from arraybridge.arrays.devices import Device

# Older versions cannot work. The oldest tested versions are those of the package's metadata.
VERSIONS_MIN: Final = {"tensorflow": (2, 12), "cupy": (13, 0), "pyclesperanto": (0, 22)}
NAMES: Final = FRAMEWORKS


class Adapter(Protocol):
    """The interface of an adapter. Some have more members:

    - `location(array)`: the device of an array that `describe` refused; None: unknown. It may raise anything.
    - `empty_like(like, number)`: its array on GPU `number` with undefined content: compact, of the shape and dtype of a View.
    - `on_named_device`: the same adapter for a caller that named the device. Its framework may compute elsewhere.
    """

    def caps(self) -> Caps:
        """Capabilities of the framework, as it is configured now. Imports the framework."""

    def describe(self, array: Any, /) -> Description:
        """Its array in the planner's terms. UnsupportedArray or UnsupportedDtype: the array has no plain memory."""

    def export(self, array: Any, /) -> View:
        """A View of its array. Never copies. REQUIRES: describe() named no obstacle."""

    def view(self, view: View, /) -> Any:
        """Its array over the View's memory. Never copies, except for `Caps.by_value`. REQUIRES: a plan."""


class Uploader(Protocol):
    """Additional member of an adapter with `Caps.own`."""

    def upload(self, view: View, device: Device, /) -> Any:
        """Its array, with the values of host memory, on a device that only this framework can address."""


class MemoryAdapter(Adapter, Protocol):
    """The interface of the six memory types: adds their GPUs, copies on them, and caches.

    A framework without GPUs makes no copies there; TensorFlow and JAX name no obstacles that `plain` could remove.
    """

    def gpus(self) -> Sequence[int]:
        """The GPUs that the framework itself can use in this process, by CUDA ordinal. Imports the framework."""

    def uploaded(self, view: View, number: int, /) -> Any:
        """Its private array on GPU `number` with the values of a View. The View is not needed afterwards.

        REQUIRES: number in gpus(), and a View in host memory is compact, of an adapter without `empty_like`.
        """

    def plain(self, array: Any, /) -> Any:
        """Its array without obstacles, in memory of the same device. REQUIRES: describe() named an obstacle, on a GPU."""

    def stacked(self, arrays: Sequence[Any], /) -> Any:
        """Arrays of one shape and dtype on one GPU as one array with an additional first dimension."""

    def clean(self, number: int | None, /) -> None:
        """Frees memory that it caches on GPU `number`, or on all. REQUIRES: it is imported."""

    def out_of_memory(self, error: BaseException, /) -> bool:
        """True if this error reports lack of memory. REQUIRES: it is imported."""


_loaded: dict[str, Adapter] = {}


def named(framework: str) -> Adapter:
    """The adapter of this name (or MemoryType).

    Raises:
        InvalidMemoryType: there is no such adapter.
    """
    if not isinstance(framework, str):
        raise unknown_framework(framework)
    found = _loaded.get(framework)
    if found is not None:
        return found
    if framework not in NAMES:
        raise unknown_framework(framework)
    try:
        found = cast(Adapter, importlib.import_module(f"arraybridge.adapters.{framework}"))
    except OSError as error:
        lack = exhausted_by(error, f"the adapter of {framework} cannot be loaded")
        if lack is None:
            raise
        raise lack from error
    return _loaded.setdefault(str(framework), found)


def of_memory_type(memory_type: str) -> MemoryAdapter:
    """The adapter of one of the six memory types.

    Raises:
        InvalidMemoryType: it is not one of them.
    """
    return cast(MemoryAdapter, named(memory_type_named(memory_type)))


def of(array: object) -> Adapter:
    """The adapter of this array's framework; the generic one for any other object with an array protocol."""
    framework = framework_of(type(array))
    return protocols() if framework is None else named(framework)


def protocols() -> Adapter:
    """The adapter of protocols: a source only."""
    from arraybridge.adapters import generic as found

    return cast(Adapter, found)


def readable(data: object) -> bool:
    """True if an adapter can read it: an array of a framework, or an object with an array protocol. Does not consume
    it.
    """
    from arraybridge.adapters import generic

    found = framework_of(type(data)) is not None or is_keras_variable(type(data))
    return found or generic.readable(data)


def get_device_id(data: object, memory_type: str) -> int | None:
    """The GPU ordinal of this array, as in `gpu_id`; None on the host.

    Raises:
        InvalidMemoryType, SourceTypeMismatch: no memory type; the array is not of this one.
        UnsupportedArray, UnsupportedDtype: the array has no plain memory.

    Example:
        >>> arraybridge.get_device_id(np.ones(3), "numpy") is None
        True
    """
    adapter = of_memory_type(memory_type)
    found = memory_type_of(type(data)) or type(data).__name__
    if found != memory_type:
        reason = f"the data is {found}, not {memory_type}: pass {found!r} as its type"
        raise SourceTypeMismatch(str(memory_type), str(memory_type), "device", reason)
    try:
        device = adapter.describe(data).device
    except MemoryConversionError as error:
        raise error.between(str(memory_type), str(memory_type)) from error.__cause__
    return None if device == HOST else device[1]


def check_seen(device: Device, framework: str, gpus: Callable[[], Sequence[int]]) -> None:
    """Raises:
    DeviceUnavailable: the memory is on a GPU that is hidden from this framework, which would mistake it for another.
    """
    if device[0] == CUDA and device[1] not in (seen := gpus()):
        there = ["cpu", *(named_device((CUDA, each)) for each in seen)]
        reason = f"{framework} does not see the CUDA device {named_device(device)}: it can use {there}"
        raise DeviceUnavailable("array", framework, "device", reason)


def supports_dlpack(obj: object) -> bool:
    """True if its class supports DLPack. Never raises, whatever the attributes of the object do.

    Example:
        >>> arraybridge.supports_dlpack(np.ones(3)), arraybridge.supports_dlpack([1.0])
        (True, False)
    """
    return hasattr(type(obj), "__dlpack__") and hasattr(type(obj), "__dlpack_device__")


def supports_cuda_array_interface(obj: object) -> bool:
    """True if its class has the CUDA array interface; an array of such a class may still lie in host memory.

    Example:
        >>> arraybridge.supports_cuda_array_interface(np.ones(3))
        False
    """
    return hasattr(type(obj), "__cuda_array_interface__")


def ensure_module(name: str, minimum: tuple[int, ...] = (0, 0)) -> ModuleType:
    """Imports the module and returns it.

    Args:
        minimum: the lowest accepted version; if this package requires a higher one (TensorFlow 2.12), that one.

    Raises:
        FrameworkNotAvailable: it cannot be imported (chained to the cause), or is older.

    Example:
        >>> arraybridge.ensure_module("numpy", (1, 23)) is np
        True
    """
    try:
        module = importlib.import_module(name)
    except Exception as error:
        lack = exhausted_by(error, f"{name} cannot be imported")
        if lack is not None:
            raise lack from error
        raise FrameworkNotAvailable("array", name, "detect", f"{name} is not available: {error}; {_install(name)}") from error
    needed = max(minimum, VERSIONS_MIN.get(name, (0, 0)))
    version = str(getattr(module, "__version__", "0.0"))
    if is_older(version, needed):
        text = ".".join(map(str, needed))
        reason = f"{name} {text} is not available: this is {version}; install a newer {name}"
        raise FrameworkNotAvailable("array", name, "detect", reason)
    return module


def _install(name: str) -> str:
    """The remedy for a module that cannot be imported."""
    package = name.partition(".")[0]
    command = pip_install(package) if package in NAMES else ""
    return f"install it, for example with `{command}`" if command else f"install {package}"


def pip_install(extra: str) -> str:
    """The command that installs the packages of an extra; "": the metadata has no such extra."""
    import shlex

    packages = packages_of(extra) if extra else []
    return f"pip install {' '.join(map(shlex.quote, packages))}" if packages else ""


def packages_of(extra: str) -> list[str]:
    """The packages that an extra of this package's metadata installs, with their oldest versions: "torch>=2.4.1"; for
    "" the packages that are always installed.
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        required = requires("arraybridged") or []
    except PackageNotFoundError:  # a tree in the path
        return []
    found = []
    for line in required:
        package, _, marker = line.partition(";")
        named = re.search(r"extra == ['\"](.+)['\"]", marker)
        if (named[1] if named else "") == extra:
            found.append(package.strip())
    return found


def is_older(version: str, minimum: tuple[int, ...]) -> bool:
    """True if a version string is below this version. The part after the numbers (rc1, +cpu) is ignored."""
    return _numbers(version) < minimum


def optional_import(name: str) -> Any:
    """The module, or a Placeholder if it cannot be imported: annotations still work, calls raise.

    Example:
        >>> absent = arraybridge.optional_import("absent")
        >>> def blur(image: absent.ndarray) -> absent.ndarray:
        ...     return absent.blur(image)
        >>> bool(absent)
        False
    """
    try:
        return importlib.import_module(name)
    except Exception as error:
        return Placeholder(name, error)


class Placeholder:
    """Stands for a module that cannot be imported, or for a name in it. Falsy; a call raises the cause."""

    __slots__ = ("_error", "_name")

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self._name = name
        self._error = error

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self._name}, not available>"

    def __getattr__(self, attribute: str) -> Placeholder:
        # copy, pickle and inspect probe special names and need AttributeError for missing ones.
        if attribute.startswith("__") and attribute.endswith("__"):
            raise AttributeError(f"{self._name} is not available and has no {attribute}")
        return Placeholder(f"{self._name}.{attribute}", self._error)

    def __or__(self, other: Any) -> Any:
        """For annotations: `cupy.ndarray | None`."""
        return Union[self, other]  # noqa: UP007

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __call__(self, *_: Any, **__: Any) -> Any:
        module = self._name.partition(".")[0]
        missing = self._error is None or (isinstance(self._error, ModuleNotFoundError) and self._error.name == module)
        why = "it is not installed" if missing else f"its import failed: {self._error}"
        reason = f"{self._name} is not available: {why}; {_install(module)}"
        raise FrameworkNotAvailable("array", module, "detect", reason) from self._error

    def __reduce__(self) -> tuple[Any, ...]:
        return Placeholder, (self._name,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placeholder) and self._name == other._name

    def __hash__(self) -> int:
        return hash(self._name)


@functools.cache
def _numbers(version: str) -> tuple[int, ...]:
    """(2, 16, 2) of "2.16.2rc1+cpu", (13, 0, 0) of "13"."""
    found = re.findall(r"\d+", re.split(r"[^\d.]", version)[0])
    return tuple(map(int, [*found, 0, 0, 0][:3]))


autograph.mark_module(__name__)
