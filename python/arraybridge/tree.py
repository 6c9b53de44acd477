"""A tree is arrays nested in dicts, lists and tuples: one share. Its structure travels as JSON, never as pickle.

Grammar of a node: an integer is the index of an array; {"d": [[key, node], ...]} a dict in its order; {"l": [node, ...]}
a list; {"t": [node, ...]} a tuple. A single array has the empty structure. Keys are str, int, bool, float or None.
An OrderedDict (a state_dict) comes back as a dict of the same order.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from arraybridge.errors import InvalidRequest

DEPTH_MAX = 64


def flatten(tree: Any) -> tuple[bytes, list[Any]]:
    """The structure of `tree` and its leaves in order. What is no dict, list or tuple is a leaf.

    Raises:
        InvalidRequest: no leaf at all, a key or a container that JSON cannot bring back, deeper than DEPTH_MAX.
    """
    if type(tree) not in _CONTAINERS and not isinstance(tree, (dict, list, tuple)):
        return b"", [tree]
    leaves: list[Any] = []
    node = _node(tree, leaves, 0)
    if not leaves:
        raise InvalidRequest("a tree without any array has nothing to share")
    return json.dumps(node, separators=(",", ":"), allow_nan=False).encode(), leaves


def unflatten(structure: bytes, leaves: Sequence[Any]) -> Any:
    """The tree with these leaves. The structure is another client's word: whatever is wrong with it is named.

    Raises:
        InvalidRequest: the structure is not of this grammar or names an array that the share does not have.
    """
    if not structure:
        if len(leaves) == 1:
            return leaves[0]
        return list(leaves)
    try:
        node = json.loads(structure)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the share's structure is not readable") from error
    return _tree(node, leaves, 0)


def mapped(function: Callable[[Any], Any], structure: bytes, leaves: Sequence[Any]) -> Any:
    """unflatten, with each leaf replaced by function(leaf)."""
    return unflatten(structure, [function(leaf) for leaf in leaves])


def converted(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree, of the same classes, with each array replaced by function(array). Inside one process, so namedtuples
    and dataclasses stay what they are; so do plain values (numbers, text, None) in every container.

    Raises:
        InvalidRequest: deeper than DEPTH_MAX, or a container of a class of the user's own.
    """
    return _converted(function, tree, 0)


_CONTAINERS = frozenset({dict, list, tuple})
_PLAIN = (str, int, float, complex, bool, Enum, type(None))
_KEYS = (str, int, float, bool, type(None))


def _node(tree: Any, leaves: list[Any], depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise InvalidRequest(f"a tree may be nested {DEPTH_MAX} deep")
    kind = type(tree)
    if kind is dict or kind is OrderedDict:
        return {"d": [[_key(key), _node(child, leaves, depth + 1)] for key, child in tree.items()]}
    if kind is list or kind is tuple:
        return {"l" if kind is list else "t": [_node(child, leaves, depth + 1) for child in tree]}
    if isinstance(tree, (dict, list, tuple)):
        raise InvalidRequest(f"{kind.__name__} would come back as another class: pass a dict, list or tuple")
    leaves.append(tree)
    return len(leaves) - 1


def _key(key: Any) -> Any:
    if type(key) not in _KEYS:
        raise InvalidRequest(f"a key of a tree is a str, int, float, bool or None, not {type(key).__name__}")
    if type(key) is float and not math.isfinite(key):
        raise InvalidRequest(f"a key of a tree is no {key}: JSON has no such number")
    return key


def _converted(function: Callable[[Any], Any], tree: Any, depth: int) -> Any:
    kind = type(tree)
    if kind not in _CONTAINERS and not isinstance(tree, (dict, list, tuple)) and not _is_record(tree):
        return function(tree)
    if depth > DEPTH_MAX:
        raise InvalidRequest(f"a tree may be nested {DEPTH_MAX} deep")

    def child(each: Any) -> Any:
        return each if _is_plain(each) else _converted(function, each, depth + 1)

    if kind is dict or kind is OrderedDict:
        return kind((key, child(each)) for key, each in tree.items())
    if kind is list or kind is tuple:
        return kind(child(each) for each in tree)
    if isinstance(tree, tuple) and hasattr(kind, "_make"):
        return kind._make(child(each) for each in tree)
    if not _is_record(tree):
        raise InvalidRequest(f"{kind.__name__} is no tree: pass a dict, list, tuple, namedtuple or dataclass")
    made = copy.copy(tree)
    for each in dataclasses.fields(tree):
        # As a frozen dataclass's own __init__ does; the copy is nobody else's yet.
        object.__setattr__(made, each.name, child(getattr(tree, each.name)))
    return made


def _is_plain(value: Any) -> bool:
    # NumPy's scalars are arrays without dimensions, also those that are Python's numbers.
    return isinstance(value, _PLAIN) and not hasattr(type(value), "__array_interface__")


def _is_record(tree: Any) -> bool:
    """A dataclass's object that is no array itself."""
    return dataclasses.is_dataclass(type(tree)) and not hasattr(type(tree), "__dlpack__")


def _tree(node: Any, leaves: Sequence[Any], depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise InvalidRequest(f"the share's structure is nested more than {DEPTH_MAX} deep")
    if type(node) is int:
        if not 0 <= node < len(leaves):
            raise InvalidRequest(f"the share's structure names array {node} of {len(leaves)}")
        return leaves[node]
    if type(node) is not dict or len(node) != 1:
        raise InvalidRequest("the share's structure holds something that is no dict, list, tuple or array")
    [(kind, children)] = node.items()
    if type(children) is not list:
        raise InvalidRequest("the share's structure holds a container without a list of children")
    if kind == "l":
        return [_tree(child, leaves, depth + 1) for child in children]
    if kind == "t":
        return tuple(_tree(child, leaves, depth + 1) for child in children)
    if kind == "d":
        return dict(_item(child, leaves, depth) for child in children)
    raise InvalidRequest(f"the share's structure holds a container of the unknown kind {kind!r}")


def _item(item: Any, leaves: Sequence[Any], depth: int) -> tuple[Any, Any]:
    if type(item) is not list or len(item) != 2 or type(item[0]) not in _KEYS:
        raise InvalidRequest("the share's structure holds a dict entry that is no [key, node]")
    return item[0], _tree(item[1], leaves, depth + 1)
