# SPDX-License-Identifier: Apache-2.0
"""Finds the framework of an array by isinstance against classes that are already imported; imports nothing.

A memory type is one of six frameworks, as a plain string; `arraybridge.detect.MemoryType` has the same names as an
enum.
"""

from __future__ import annotations

import reprlib
import sys
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from arraybridge import autograph
from arraybridge.errors import InvalidMemoryType

# (module, attribute path, memory type). `jax.Array` covers concrete arrays; its tracers are not subclasses of it.
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
# The frameworks that are targets, in the order of all lists. The first six are memory types; only a Broker takes the others.
FRAMEWORKS: Final = ("numpy", "torch", "tensorflow", "jax", "cupy", "pyclesperanto", "numba", "pyarrow")
LIBRARIES: Final = ("pandas", "polars", "duckdb", "xarray")  # of tables: a get makes their objects of what was put
MEMORY_TYPES: Final = frozenset(memory_type for _, _, memory_type in _CLASSES)

# (top module, a base of its sparse classes, adapter): matched by the names of a type's bases.
_SPARSE_CLASSES: Final = (
    ("scipy", "_spbase", "scipy"),
    ("scipy", "spmatrix", "scipy"),
    ("cupyx", "spmatrix", "cupy"),
    ("jax", "JAXSparse", "jax"),
    ("tensorflow", "SparseTensor", "tensorflow"),
)

# Arrays without a MemoryType: (top module, class, adapter), matched by the names of a type's bases.
_FURTHER: Final = (
    ("numba", "DeviceNDArrayBase", "numba"),
    ("numba_cuda", "DeviceNDArrayBase", "numba"),
    ("pyarrow", "Array", "pyarrow"),
    ("pyarrow", "ChunkedArray", "pyarrow"),
    ("pyarrow", "Tensor", "pyarrow"),
    # These consist of several tensors each; their adapter reports it.
    ("tensorflow", "RaggedTensor", "tensorflow"),
    ("tensorflow", "SparseTensor", "tensorflow"),
    ("tensorflow", "IndexedSlices", "tensorflow"),
)

# Containers of other libraries: (top module, class, the arrays to pass in its place), matched by the names of a type's bases.
_CONTAINERS: Final = (
    *(("dask", name, "array.compute()") for name in ("Array", "DataFrame", "Series")),
    ("h5py", "Dataset", "dataset[...]"),
    ("h5py", "Group", "{name: dataset[...] for name, dataset in group.items()}"),
    ("pandas", "DataFrame", "{name: frame[name].to_numpy() for name in frame}"),
    ("pandas", "ExtensionArray", "array.to_numpy()"),
    ("pandas", "Index", "index.to_numpy()"),
    ("pandas", "Series", "series.to_numpy()"),
    ("polars", "DataFrame", "{name: frame[name].to_numpy() for name in frame.columns}"),
    ("polars", "LazyFrame", "{name: column.to_numpy() for name, column in frame.collect().to_dict().items()}"),
    ("polars", "Series", "series.to_numpy()"),
    ("pyarrow", "RecordBatch", "dict(zip(batch.schema.names, batch.columns))"),
    ("pyarrow", "Table", "dict(zip(table.schema.names, table.columns))"),
    ("xarray", "DataArray", "array.to_numpy()"),
    ("xarray", "Dataset", "{name: array.to_numpy() for name, array in dataset.items()}"),
    ("xarray", "Variable", "variable.to_numpy()"),
    ("zarr", "Array", "array[...]"),
    ("zarr", "Group", "{name: array[...] for name, array in group.arrays()}"),
)

_ROOTS: Final = frozenset({module for module, _, _ in _CLASSES} | {"jaxlib"})

# Only arrays are cached: an unknown type may belong to a framework that is still being imported.
_known: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
# Classes that live as long as the process, in a plain dictionary, which takes a third of the time: the frameworks' own,
# and Python's own of the nodes of trees, which are no arrays.
_lasting: dict[type, str | None] = dict.fromkeys((dict, OrderedDict, list, tuple, int, float, bool, str, bytes, type(None)))


def memory_type_of(kind: type) -> str | None:
    """The memory type whose arrays are of class `kind`, or None. Thread-safe; reads no attribute of any array."""
    if kind in _lasting:
        return _lasting[kind]
    if (found := _known.get(kind)) is not None:
        return found
    for module, path, memory_type in _CLASSES:
        base = _class(module, path)
        if base is not None and issubclass(kind, base):
            own = kind is base or root_of(kind) in _ROOTS
            (_lasting if own else _known)[kind] = memory_type
            return memory_type
    return None


def framework_of(kind: type) -> str | None:
    """The name of the adapter whose framework has arrays of this class. Imports nothing."""
    return memory_type_of(kind) or _by_a_base(kind, _FURTHER)


def _by_a_base(kind: type, classes: Iterable[tuple[str, str, str]]) -> str | None:
    for base in kind.__mro__:
        root = root_of(base)
        for module, name, framework in classes:
            if root == module and base.__name__ == name:
                return framework
    return None


def arrays_of_container(kind: type) -> str | None:
    """The expression that makes arrays of an object of this class, if it is a container of another library. Imports
    nothing.
    """
    return _by_a_base(kind, _CONTAINERS)


def in_place_of(kind: type) -> str | None:
    """The advice for an object of this class that has arrays and none of their protocols; None: it has no arrays."""
    expression = arrays_of_container(kind)
    if expression is None and hasattr(kind, "__array__"):
        expression = "numpy.asarray(array)"
    return f"{kind.__name__} is not an array itself: pass {expression}" if expression else None


def is_keras_variable(kind: type) -> bool:
    """True if objects of this class are Keras variables, with any backend of Keras. Imports nothing."""
    return any(base.__name__ == "Variable" and root_of(base) == "keras" for base in kind.__mro__)


def is_dense(kind: type) -> bool:
    """True if arrays of this class are dense: of all array classes, only torch's has sparse objects too."""
    return memory_type_of(kind) not in (None, "torch")


def is_sparse(kind: type) -> bool:
    """True if all objects of this class are sparse arrays. Some are also containers: SciPy's `dok_array` is a dict."""
    return memory_type_of(kind) is None and sparse_framework_of(kind) is not None


def sparse_framework_of(kind: type) -> str | None:
    """The name of the adapter that may take arrays of class `kind` apart as sparse ones, or None. Torch has one class
    for dense and sparse tensors. Imports nothing.
    """
    found = memory_type_of(kind)
    if found is not None:
        return found if found == "torch" else None
    return _by_a_base(kind, _SPARSE_CLASSES)


def memory_type_named(name: object, source: str = "array") -> str:
    """The memory type of this name, as its plain string.

    Raises:
        InvalidMemoryType: there is no such memory type.
    """
    if isinstance(name, str) and name in MEMORY_TYPES:
        return str(name)
    raise unknown_framework(name, source)


def unknown_framework(name: object, source: str = "array") -> InvalidMemoryType:
    """The error about an argument that should be the name of a framework, with the names that exist."""
    import difflib  # needed here alone

    shown = name if isinstance(name, str) else reprlib.repr(name)
    if not isinstance(name, str):
        what = f"the name of a framework must be a str, not {shown}"
    elif name in LIBRARIES:
        what = f"{name!r} has tables, which Broker.get makes, and no arrays"
    elif name in FRAMEWORKS:
        what = f"{name!r} is a framework of a Broker only, for example of Broker.convert"
    else:
        near = difflib.get_close_matches(name.lower(), FRAMEWORKS + LIBRARIES, 1)
        what = f"{name!r} is not the name of a framework" + (f" (did you mean {near[0]!r}?)" if near else "")
    six, more = ([each for each in FRAMEWORKS if (each in MEMORY_TYPES) is known] for known in (True, False))
    reason = f"{what}: use one of {six}, with a Broker also {more}, and to get tables {list(LIBRARIES)}"
    return InvalidMemoryType(source, str(shown), "detect", reason)


def root_of(kind: type) -> str:
    """The top package of a class; "" if its module is not a name."""
    module = getattr(kind, "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else ""


def detect_memory_type(data: object, *, strict: bool = False) -> str | None:
    """The name of the framework of an array ("torch"), or None.

    Raises:
        InvalidMemoryType: it is not an array of one, and `strict` is set.

    Example:
        >>> arraybridge.detect_memory_type(np.ones(3)), arraybridge.detect_memory_type("text")
        ('numpy', None)
    """
    try:
        found = _lasting[type(data)]  # faster than .get, and the common case
    except KeyError:
        found = memory_type_of(type(data))
    if found is None and strict:
        raise unreadable(data)
    return found


def unreadable(data: object, target: str = "any") -> InvalidMemoryType:
    """The error about an object that is not an array."""
    kind = type(data).__name__
    protocols = "an object with DLPack, an array interface or a buffer"
    general = f"{kind} is not an array: pass an array of {', '.join(FRAMEWORKS)}, or {protocols}"
    reason = in_place_of(type(data)) or general
    return InvalidMemoryType(kind, target, "detect", reason)


def _class(module: str, path: str) -> type | None:
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        # Reads a module's own dictionary: the __getattr__ of a lazy module would import something.
        found = getattr(found, part, None)
        if found is None:
            return None
    return found if isinstance(found, type) else None


autograph.mark_module(__name__)
