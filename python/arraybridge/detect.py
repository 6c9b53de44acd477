"""Whose array is it? Answered by isinstance against classes that are imported already; nothing is ever imported."""

from __future__ import annotations

import sys
import weakref
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from arraybridge import autograph
from arraybridge.errors import InvalidMemoryType

if TYPE_CHECKING:
    from arraybridge.convert import Converter

__all__ = [
    "CPU_MEMORY_TYPES",
    "GPU_MEMORY_TYPES",
    "MEMORY_TYPE_CUPY",
    "MEMORY_TYPE_JAX",
    "MEMORY_TYPE_NUMPY",
    "MEMORY_TYPE_PYCLESPERANTO",
    "MEMORY_TYPE_TENSORFLOW",
    "MEMORY_TYPE_TORCH",
    "SUPPORTED_MEMORY_TYPES",
    "VALID_GPU_MEMORY_TYPES",
    "VALID_MEMORY_TYPES",
    "MemoryType",
    "detect_memory_type",
]

class MemoryType(str, Enum):
    """The six memory types. A member equals and hashes like its string."""

    NUMPY = "numpy"
    CUPY = "cupy"
    TORCH = "torch"
    TENSORFLOW = "tensorflow"
    JAX = "jax"
    PYCLESPERANTO = "pyclesperanto"

    # One text on every Python version: they disagree about a str enum's str() and format().
    def __str__(self) -> str:
        return str.__str__(self)

    def __format__(self, spec: str) -> str:
        return str.__format__(self, spec)

    def __hash__(self) -> int:
        return str.__hash__(self)

    @property
    def converter(self) -> Converter:
        """Conversions from and to this type, as methods."""
        from arraybridge.convert import Converter

        return Converter(self)

    def to_numpy(self, data: Any, gpu_id: int | None = 0) -> Any:
        """convert_memory(data, self, "numpy", gpu_id), and so on."""
        return self._converted(data, "numpy", gpu_id)

    def to_cupy(self, data: Any, gpu_id: int | None = 0) -> Any:
        return self._converted(data, "cupy", gpu_id)

    def to_torch(self, data: Any, gpu_id: int | None = 0) -> Any:
        return self._converted(data, "torch", gpu_id)

    def to_tensorflow(self, data: Any, gpu_id: int | None = 0) -> Any:
        return self._converted(data, "tensorflow", gpu_id)

    def to_jax(self, data: Any, gpu_id: int | None = 0) -> Any:
        return self._converted(data, "jax", gpu_id)

    def to_pyclesperanto(self, data: Any, gpu_id: int | None = 0) -> Any:
        return self._converted(data, "pyclesperanto", gpu_id)

    def _converted(self, data: Any, target: str, gpu_id: int | None) -> Any:
        from arraybridge.convert import converted

        return converted(data, self, target, gpu_id)


CPU_MEMORY_TYPES: Final = frozenset({MemoryType.NUMPY})
SUPPORTED_MEMORY_TYPES: Final = frozenset(MemoryType)
GPU_MEMORY_TYPES: Final = SUPPORTED_MEMORY_TYPES - CPU_MEMORY_TYPES
VALID_MEMORY_TYPES: Final = frozenset(member.value for member in MemoryType)
VALID_GPU_MEMORY_TYPES: Final = frozenset(member.value for member in GPU_MEMORY_TYPES)
MEMORY_TYPE_NUMPY: Final = "numpy"
MEMORY_TYPE_CUPY: Final = "cupy"
MEMORY_TYPE_TORCH: Final = "torch"
MEMORY_TYPE_TENSORFLOW: Final = "tensorflow"
MEMORY_TYPE_JAX: Final = "jax"
MEMORY_TYPE_PYCLESPERANTO: Final = "pyclesperanto"

# (module, attribute path, memory type). `jax.Array` knows concrete arrays; its tracers are no subclasses of it.
_CLASSES: Final[tuple[tuple[str, str, str], ...]] = (
    ("numpy", "ndarray", "numpy"),
    ("cupy", "ndarray", "cupy"),
    ("torch", "Tensor", "torch"),
    ("tensorflow", "Tensor", "tensorflow"),
    ("tensorflow", "Variable", "tensorflow"),
    ("jax", "Array", "jax"),
    ("jax", "core.Tracer", "jax"),
    ("pyclesperanto", "Array", "pyclesperanto"),
    ("pyclesperanto_opencl", "_pyclesperanto._Array", "pyclesperanto"),
    ("pyclesperanto_cuda", "_pyclesperanto._Array", "pyclesperanto"),
    ("pyclesperanto_metal", "_pyclesperanto._Array", "pyclesperanto"),
    ("pyclesperanto_prototype", "_tier0._pycl.OCLArray", "pyclesperanto"),
)

# (top module, a base of its sparse classes, adapter): found by the names of a type's bases alone.
_SPARSE_CLASSES: Final = (
    ("scipy", "_spbase", "scipy"),
    ("scipy", "spmatrix", "scipy"),
    ("cupyx", "spmatrix", "cupy"),
    ("jax", "JAXSparse", "jax"),
    ("tensorflow", "SparseTensor", "tensorflow"),
)

_ROOTS: Final = frozenset({module for module, _, _ in _CLASSES} | {"jaxlib"})

# Only arrays are remembered: a type that is nothing today may belong to a framework that is still being imported.
_known: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
# The frameworks' own classes, which live as long as the process: a plain dictionary answers in a third of the time.
_lasting: dict[type, str] = {}


def memory_type_of(kind: type) -> str | None:
    """The memory type whose arrays are of class `kind`, or None. Thread-safe; reads no attribute of any array."""
    found = _lasting.get(kind) or _known.get(kind)
    if found is not None:
        return found
    for module, path, memory_type in _CLASSES:
        base = _class(module, path)
        if base is not None and issubclass(kind, base):
            own = kind is base or root_of(kind) in _ROOTS
            (_lasting if own else _known)[kind] = memory_type
            return memory_type
    return None


def is_sparse(kind: type) -> bool:
    """Whether a class is of sparse arrays alone. Some of them are containers too: SciPy's `dok_array` is a dict."""
    return memory_type_of(kind) is None and sparse_framework_of(kind) is not None


def sparse_framework_of(kind: type) -> str | None:
    """The name of the adapter that may take arrays of class `kind` apart as sparse ones, or None. Torch has one class for dense
    and sparse tensors. Imports nothing."""
    found = memory_type_of(kind)
    if found is not None:
        return found if found == "torch" else None
    for base in kind.__mro__:
        root = root_of(base)
        for module, name, framework in _SPARSE_CLASSES:
            if root == module and base.__name__ == name:
                return framework
    return None


def memory_type_named(name: object, source: str = "array") -> str:
    """The memory type of this name, as its plain string.

    Raises:
        InvalidMemoryType: there is none.
    """
    if isinstance(name, str) and name in SUPPORTED_MEMORY_TYPES:
        return str(name)
    reason = f"{name!r} is no memory type; use one of {sorted(VALID_MEMORY_TYPES)}"
    raise InvalidMemoryType(source, str(name), "detect", reason)


def root_of(kind: type) -> str:
    """The top package of a class; "" of one whose module is no name."""
    module = getattr(kind, "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else ""


def detect_memory_type(data: object, *, strict: bool = False) -> str | None:
    """The name of the framework that `data` is an array of ("torch"), or None.

    Raises:
        InvalidMemoryType: it is none, and `strict` is set.
    """
    try:
        return _lasting[type(data)]  # quicker than .get, and the rule
    except KeyError:
        found = memory_type_of(type(data))
    if found is None and strict:
        name = type(data).__name__
        raise InvalidMemoryType(name, "any", "detect", f"Unknown memory type for {name}")
    return found


def _class(module: str, path: str) -> type | None:
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        # Of the module's own dictionary where there is one: a lazy module's __getattr__ would import something.
        found = getattr(found, part, None)
        if found is None:
            return None
    return found if isinstance(found, type) else None


autograph.mark_module(__name__)
