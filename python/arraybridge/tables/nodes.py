# SPDX-License-Identifier: Apache-2.0
"""A Node describes an Arrow array and its schema; its buffers are leaves of the tree in which a table is put.

The structure of a share has {"table": [kind, node, first, count]}: the leaves `first` to `first + count - 1` are its
buffers, and a node is [format, name, metadata in base64, flags, length, nulls, [leaf or null, ...], [node, ...], node or
null], where the last is the dictionary, and leaves count from 0. Offsets of arrays are 0. The kind says what was put.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from arraybridge.errors import InvalidRequest

# A table, an array or a column (chunks are joined), or a pandas Series, which is a table of its values and its index.
Kind = Literal["table", "column", "series"]
ALONE: Final = b'{"table":'  # begins the structure of a share that has a table and nothing else
DEPTH_MAX: Final = 48  # of nested types. A tree's structure has at most as many levels


class Node(NamedTuple):
    """An array and its schema. A value.

    Attributes:
        format: of Arrow's C data interface.
        metadata: of the schema, as the C data interface has it.
        flags: 1: the dictionary is ordered; 2: nulls are possible; 4: the keys of maps are sorted.
        nulls: the number of nulls.
        buffers: leaves; None: an array without nulls has no validity. A binary view's sizes are not among them.
        dictionary: the values; the array's own are indices then.
    """

    format: str
    name: str
    metadata: bytes
    flags: int
    length: int
    nulls: int
    buffers: tuple[int | None, ...]
    children: tuple[Node, ...]
    dictionary: Node | None


class Description(NamedTuple):
    """The part [kind, node, first, count] of a structure that another process wrote, as JSON; or {"table": the same}. A value.
    The extension reads it, beside the arrays of the share.
    """

    text: bytes


def described(node: Node) -> list[Any]:
    """The node as a part of a structure."""
    metadata = base64.b64encode(node.metadata).decode()
    dictionary = None if node.dictionary is None else described(node.dictionary)
    children = [described(child) for child in node.children]
    return [node.format, node.name, metadata, node.flags, node.length, node.nulls, list(node.buffers), children, dictionary]


def taken(body: list[Any], take: Callable[[int], Any]) -> tuple[Description, list[Any]]:
    """The description in a part of a tree, and the arrays that it names. `take`: the array of a number.

    Raises:
        InvalidRequest: it is nested too deep. Errors of `take`.
    """
    kind, node, first, count = body if len(body) == 4 else (None, None, 0, 0)
    parts = [take(index) for index in range(first, first + count)] if type(first) is type(count) is int else []
    try:
        return Description(json.dumps([kind, node, 0, len(parts)]).encode()), parts
    except RecursionError as error:
        raise InvalidRequest(f"the share's structure contains a table that is nested more than {DEPTH_MAX} deep") from error


def node_of(fields: tuple[Any, ...]) -> Node:
    """The node that the extension has read: its fields, nested, with bytes in the place of text."""
    format, name, metadata, flags, length, nulls, buffers, children, dictionary = fields
    texts = format.decode(errors="surrogateescape"), name.decode(errors="surrogateescape")
    values = None if dictionary is None else node_of(dictionary)
    return Node(*texts, metadata, flags, length, nulls, buffers, tuple(map(node_of, children)), values)
