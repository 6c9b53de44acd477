# SPDX-License-Identifier: Apache-2.0
"""Several trees of arrays as one tree, whose arrays have one dimension more."""

from __future__ import annotations

import sys
from typing import Any, Final

from arraybridge.conversion import tree
from arraybridge.errors import InvalidRequest

# The first part of the module of an array's class, to the module that has `stack`; others have it themselves.
_MODULES: Final = {"jax": "jax.numpy", "jaxlib": "jax.numpy"}
_OTHERWISE: Final = "Batch.values has each of them"


def stacked(values: list[Any]) -> Any:
    """A copy: the arrays at each place of the trees along a new first dimension.

    Raises:
        InvalidRequest: the trees, shapes or dtypes differ, or the framework of the arrays has no `stack`.
    """
    structures, leaves = zip(*(tree.flatten(value) for value in values), strict=True)
    for number, structure in enumerate(structures):
        if structure != structures[0]:
            raise InvalidRequest(f"stack needs equal trees: request {number} has another one than request 0; {_OTHERWISE}")
    together = [_array_of(list(arrays)) for arrays in zip(*leaves, strict=True)]
    return tree.unflatten(structures[0], together) if structures[0] else together[0]


def _array_of(arrays: list[Any]) -> Any:
    if arrays[0] is tree.NOTHING:
        return arrays[0]
    forms = [(tuple(array.shape), str(array.dtype)) for array in arrays]
    for number, form in enumerate(forms):
        if form != forms[0]:
            raise InvalidRequest(f"stack needs one shape and dtype: request {number} has {form}, request 0 {forms[0]}; {_OTHERWISE}")
    root = type(arrays[0]).__module__.partition(".")[0]
    stack = getattr(sys.modules.get(_MODULES.get(root, root)), "stack", None)
    if stack is None:
        raise InvalidRequest(f"arrays of {type(arrays[0]).__name__} have no stack; {_OTHERWISE}")
    return stack(arrays)
