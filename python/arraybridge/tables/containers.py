# SPDX-License-Identifier: Apache-2.0
"""Arrays of files: datasets of HDF5 and zarr, which their libraries read straight into the memory of the one copy; and objects
that have `__array__` and no other protocol, whose array is copied there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.arrays.classes import arrays_of_container, root_of
from arraybridge.errors import InvalidRequest, MemoryConversionError, UnsupportedArray
from arraybridge.planner import Description
from arraybridge.tables.leaves import Written

_REASON: Final = "no_foreign_memory: array protocol: 1 copy, by the library that reads the file"
_REASON_OF_ARRAY: Final = "no_foreign_memory: array protocol: 1 copy, of the array that its __array__ returns"


def described(value: Any) -> Description | None:
    """The description of an array whose values are written: of a table, or of a file. None: another object; imports nothing.

    A dataset whose dtype cannot be shared gets a refusal.
    """
    if isinstance(value, Written):
        return value.described()
    make = next((made for base in type(value).__mro__ if (made := _MAKERS.get((root_of(base), base.__name__)))), None)
    return None if make is None else _described(value, make, root_of(type(value)))


def of_protocol(value: Any) -> Description | None:
    """The description of an object whose class has `__array__`, which is called once; None: it has not, or is a container of
    another library, whose values it would compute or lose. REQUIRES: it has no protocol that shows its memory.
    """
    kind = type(value)
    return _described(value, _of_array, kind.__name__) if hasattr(kind, "__array__") and arrays_of_container(kind) is None else None


def _described(value: Any, make: Callable[[Any], Written], source: str) -> Description:
    kind = type(value).__name__
    try:
        return make(value).described()
    except MemoryConversionError as refused:
        return Description.refused(source, refused.with_traceback(None))
    except InvalidRequest:
        raise
    except Exception as error:
        refusal = UnsupportedArray(kind, "any", "hand_over", f"its library cannot read it: {type(error).__name__}: {error}")
        return Description.refused(source, refusal)


def _of_hdf5(dataset: Any) -> Written:
    if dataset.shape is None:
        raise UnsupportedArray("h5py", "any", "hand_over", f"the dataset {dataset.name!r} is empty and has no shape: leave it out")

    def write(target: Any) -> None:
        if target.size:
            dataset.read_direct(target)

    return Written(dataset.dtype, dataset.shape, write, _REASON, "h5py")


def _of_zarr(array: Any) -> Written:
    def write(target: Any) -> None:
        if not target.size:
            return
        try:
            from_numpy = _cpu_buffer().from_numpy_array
        except (AttributeError, ImportError):
            array.get_basic_selection(out=target)  # before zarr 3
        else:
            array.get_basic_selection(out=from_numpy(target))

    return Written(array.dtype, array.shape, write, _REASON, "zarr")


def _cpu_buffer() -> Any:
    import importlib

    return importlib.import_module("zarr.core.buffer.cpu").NDBuffer


def _of_array(value: Any) -> Written:
    np = numpy_adapter.module()
    array = np.asanyarray(value)
    if np.ma.isMaskedArray(array) or hasattr(value, "mask"):
        raise UnsupportedArray(
            type(value).__name__, "any", "hand_over", "it has a mask, which an array loses: pass its values and its mask"
        )
    return Written(array.dtype, array.shape, lambda target: np.copyto(target, array), _REASON_OF_ARRAY, type(value).__name__)


_MAKERS: Final[Mapping[tuple[str, str], Callable[[Any], Written]]] = {
    ("h5py", "Dataset"): _of_hdf5,
    ("zarr", "Array"): _of_zarr,
}
