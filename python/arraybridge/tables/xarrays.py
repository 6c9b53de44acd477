# SPDX-License-Identifier: Apache-2.0
"""xarray's arrays and datasets as trees: names, dimensions, coordinates and attributes beside the values. A reader without
xarray, or with another framework, gets an `arraybridge.Record` of the same fields.

An array has the fields name, dims, values, coords, attrs; a dataset variables, coords, attrs. A variable, also of coordinates,
is [dims, values, attrs]. Text is a list of str with its shape: ["text", shape, [...]].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from arraybridge.adapters import ensure_module, numpy as numpy_adapter
from arraybridge.arrays.classes import root_of
from arraybridge.errors import InvalidRequest, UnsupportedArray

ARRAY: Final = "xarray:DataArray"  # names of records, which are no classes
DATASET: Final = "xarray:Dataset"
_TEXT: Final = "text"
_DEPTH_MAX: Final = 64
_PLAIN: Final = (str, int, float, bool, bytes, complex, type(None))
Fields = list[tuple[str, Any]]


def is_labelled(value: Any) -> bool:
    """True if it is an array or a dataset of xarray. Imports nothing."""
    return any(root_of(base) == "xarray" and base.__name__ in ("DataArray", "Dataset") for base in type(value).__mro__)


def fields_of(value: Any) -> tuple[str, Fields] | None:
    """The name and the fields of the record of an array or a dataset; None: another object. Imports nothing.

    Raises:
        UnsupportedArray: its values are lazy (dask), or Python objects.
    """
    if not is_labelled(value):
        return None
    coordinates, attributes = _variables(value.coords), _attributes(value.attrs)
    if hasattr(value, "data_vars"):
        return DATASET, [("variables", _variables(value.data_vars)), ("coords", coordinates), ("attrs", attributes)]
    name = None if value.name is None else str(value.name)
    return ARRAY, [
        ("name", name), ("dims", list(map(str, value.dims))), ("values", _values(value.variable, str(name))),
        ("coords", coordinates), ("attrs", attributes),
    ]  # fmt: skip


def made(tree: Any, depth: int = 0) -> Any:
    """The same tree with xarray's objects in the place of their records. REQUIRES: xarray is installed.

    Raises:
        InvalidRequest: a record of this name has other fields: another version, or another program, has put it.
    """
    if depth > _DEPTH_MAX:
        return tree
    if getattr(tree, "type_name", None) in (ARRAY, DATASET):
        try:
            return _array_of(tree) if tree.type_name == ARRAY else _dataset_of(tree)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise InvalidRequest(f"the share's {tree.type_name} is invalid: {error}: get it as 'numpy' to see its fields") from error
    if type(tree) is dict:
        return {key: made(child, depth + 1) for key, child in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(made(child, depth + 1) for child in tree)
    return tree


def _array_of(record: Mapping[str, Any]) -> Any:
    xarray = ensure_module("xarray")
    return xarray.DataArray(
        _read(record["values"]), _coordinates(record["coords"]), record["dims"], record["name"], record["attrs"]
    )  # fmt: skip


def _dataset_of(record: Mapping[str, Any]) -> Any:
    xarray = ensure_module("xarray")
    variables = {name: xarray.Variable(dims, _read(values), attrs) for name, (dims, values, attrs) in record["variables"].items()}
    return xarray.Dataset(variables, _coordinates(record["coords"]), record["attrs"])


def _coordinates(coordinates: Mapping[str, Any]) -> dict[str, Any]:
    xarray = ensure_module("xarray")
    return {name: xarray.Variable(dims, _read(values), attrs) for name, (dims, values, attrs) in coordinates.items()}


def _read(values: Any) -> Any:
    if type(values) is list:
        word, shape, texts = values
        if word != _TEXT or math.prod(shape) != len(texts):
            raise ValueError("neither an array nor text")
        return numpy_adapter.module().array(texts, str).reshape(shape)
    return values


def _variables(variables: Mapping[Any, Any]) -> dict[str, Any]:
    found = {}
    for name, value in variables.items():
        variable = value.variable
        found[str(name)] = [list(map(str, variable.dims)), _values(variable, str(name)), _attributes(variable.attrs)]
    return found


def _values(variable: Any, name: str) -> Any:
    if variable.chunks is not None:
        raise UnsupportedArray("xarray", "share", "hand_over", f"{name!r} is not computed yet: call .compute() first")
    values = variable.values
    if values.dtype.kind == "U":
        return [_TEXT, list(values.shape), values.reshape(-1).tolist()]
    if values.dtype.hasobject:
        texts = values.reshape(-1).tolist()
        if not all(type(each) is str for each in texts):
            reason = f"{name!r} has Python objects, which no other process can read: convert it with astype(float) or astype(str)"
            raise UnsupportedArray("xarray", "share", "hand_over", reason)
        return [_TEXT, list(values.shape), texts]
    return values


def _attributes(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Plain values, lists of them, and arrays, which a tree takes; NumPy's numbers as Python's."""
    return {str(name): _attribute(value) for name, value in attributes.items()}


def _attribute(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_attribute(each) for each in value]
    if isinstance(value, Mapping):
        return _attributes(value)
    plain = value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 else value
    return plain if isinstance(plain, _PLAIN) else value
