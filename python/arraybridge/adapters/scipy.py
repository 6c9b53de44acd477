# SPDX-License-Identifier: Apache-2.0
"""SciPy: the sparse arrays of NumPy. They keep the memory of the parts that they are made of."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from arraybridge.adapters import ensure_module
from arraybridge.arrays.sparse_layout import Layout
from arraybridge.errors import UnsupportedArray


def sparse_parts(array: Any) -> tuple[Layout, list[Any]]:
    matrix = isinstance(array, _sparse().spmatrix)
    if array.format in ("csr", "csc"):
        # Values after the last index pointer belong to no row.
        count = int(array.indptr[-1])
        parts = [array.indptr, array.indices[:count], array.data[:count]]
        return Layout(array.format, tuple(map(int, array.shape)), matrix=matrix), parts
    if array.format == "coo":
        coordinates = list(getattr(array, "coords", None) or (array.row, array.col))  # before SciPy 1.13
        return Layout("coo", tuple(map(int, array.shape)), matrix=matrix), [*coordinates, array.data]
    reason = f"the sparse format {array.format} ({type(array).__name__}) is not supported; use csr, csc or coo: pass array.tocsr()"
    raise UnsupportedArray("scipy", "any", "hand_over", reason)


def sparse_canonical(array: Any) -> Any:
    # A new object: SciPy caches what it knows of the order, and another program may have changed the array since.
    made = type(array)((array.data.copy(), array.indices.copy(), array.indptr.copy()), shape=array.shape)
    made.sum_duplicates()
    return made


def sparse_obstacle(layout: Layout, dtypes: frozenset[str]) -> str:
    return "dtype: all of SciPy's indices have one dtype" if len(dtypes) > 1 else ""


def sparse_made(layout: Layout, parts: Sequence[Any]) -> Any:
    sparse = _sparse()
    kind = getattr(sparse, f"{layout.format}_{'matrix' if layout.matrix else 'array'}")
    *indices, data = parts
    if layout.format != "coo":
        starts, indices = indices
        return kind((data, indices, starts), shape=layout.shape, copy=False)
    if layout.indices == "by_axis":
        indices = list(indices[0])
    elif layout.indices == "by_value":
        indices = list(indices[0].T)
    return kind((data, tuple(indices)), shape=layout.shape, copy=False)


@functools.cache
def _sparse() -> Any:
    return ensure_module("scipy.sparse")
