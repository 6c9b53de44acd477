# SPDX-License-Identifier: Apache-2.0
"""Arrays of files: datasets of HDF5 and zarr, which their libraries read straight into the memory of the one copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from arraybridge.arrays.classes import root_of
from arraybridge.errors import InvalidRequest, MemoryConversionError, UnsupportedArray
from arraybridge.planner import Description
from arraybridge.tables.leaves import Written

_REASON: Final = "no_foreign_memory: array protocol: 1 copy, by the library that reads the file"


def described(value: Any) -> Description | None:
    """The description of an array whose values are written: of a table, or of a file. None: another object; imports nothing.

    A dataset whose dtype cannot be shared gets a refusal.
    """
    if isinstance(value, Written):
        return value.described()
    make = next((made for base in type(value).__mro__ if (made := _MAKERS.get((root_of(base), base.__name__)))), None)
    if make is None:
        return None
    kind = type(value).__name__
    try:
        return make(value).described()
    except MemoryConversionError as refused:
        return Description.refused(root_of(type(value)), refused.with_traceback(None))
    except InvalidRequest:
        raise
    except Exception as error:
        refusal = UnsupportedArray(kind, "any", "hand_over", f"its library cannot read it: {type(error).__name__}: {error}")
        return Description.refused(root_of(type(value)), refusal)


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


_MAKERS: Final[Mapping[tuple[str, str], Callable[[Any], Written]]] = {
    ("h5py", "Dataset"): _of_hdf5,
    ("zarr", "Array"): _of_zarr,
}
