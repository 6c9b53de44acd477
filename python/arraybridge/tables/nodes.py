# SPDX-License-Identifier: Apache-2.0
"""A Node describes an Arrow array and its schema; its buffers are leaves of the tree in which a table is put.

The structure of a share has {"table": [kind, node, first, count]}: the leaves `first` to `first + count - 1` are its
buffers, and a node is [format, name, metadata in base64, flags, length, nulls, [leaf or null, ...], [node, ...], node or
null], where the last is the dictionary, and leaves count from 0. Offsets of arrays are 0. The kind says what was put.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Any, Final, Literal, NamedTuple, get_args

from arraybridge.errors import InvalidRequest

# A table, an array or a column (chunks are joined), or a pandas Series, which is a table of its values and its index.
Kind = Literal["table", "column", "series"]
DEPTH_MAX: Final = 48  # of nested types. A tree's structure has at most as many levels
_SIZE_MAX: Final = 2**62


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
    """The description of a table in its tree. A value."""

    kind: Kind
    node: Node


def described(node: Node) -> list[Any]:
    """The node as a part of a structure."""
    metadata = base64.b64encode(node.metadata).decode()
    dictionary = None if node.dictionary is None else described(node.dictionary)
    children = [described(child) for child in node.children]
    return [node.format, node.name, metadata, node.flags, node.length, node.nulls, list(node.buffers), children, dictionary]


def read(body: Any) -> tuple[Description, int, int]:
    """The description in a structure, which comes from another process; the first of its leaves, and their number.

    Raises:
        InvalidRequest: it violates the grammar.
    """
    if type(body) is not list or len(body) != 4 or body[0] not in get_args(Kind):
        raise _malformed("is not [kind, node, first, count]")
    kind, node, first, count = body
    if type(first) is not int or type(count) is not int or not 0 <= first <= first + count <= _SIZE_MAX:
        raise _malformed("has no range of arrays")
    return Description(kind, _node(node, 0)), first, count


def _node(body: Any, depth: int) -> Node:
    if depth > DEPTH_MAX:
        raise _malformed(f"is nested more than {DEPTH_MAX} deep")
    if type(body) is not list or len(body) != 9:
        raise _malformed("has a column without its nine fields")
    _check_types(body)
    format, name, metadata, flags, length, nulls, buffers, children, dictionary = body
    own = _metadata(metadata)
    inner = tuple(_node(child, depth + 1) for child in children)
    values = None if dictionary is None else _node(dictionary, depth + 1)
    return Node(format, name, own, flags, length, nulls, tuple(buffers), inner, values)


def _check_types(body: list[Any]) -> None:
    texts, numbers, buffers, children = body[:3], body[3:6], body[6], body[7]
    if list(map(type, texts)) != [str, str, str] or "\0" in "".join(texts):
        raise _malformed("has a column whose format or name is not text")
    if list(map(type, numbers)) != [int, int, int] or not 0 <= min(numbers) <= max(numbers) <= _SIZE_MAX:
        raise _malformed("has a column with an invalid number")
    if type(buffers) is not list or type(children) is not list or {type(each) for each in buffers} - {int, type(None)}:
        raise _malformed("has a column without lists of buffers and children")


def _metadata(text: str) -> bytes:
    """The bytes of metadata. A consumer of the C data interface, which gets an address without a size, reads these alone."""
    if not text:
        return b""
    try:
        metadata = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _malformed("has metadata that is not base64") from error
    _check_metadata(metadata)
    return metadata


def _check_metadata(metadata: bytes) -> None:
    try:
        [count], at = struct.unpack_from("=i", metadata), 4
        if not 0 <= count <= len(metadata):
            raise _malformed("has metadata with an invalid number of entries")
        for _ in range(2 * count):
            [size] = struct.unpack_from("=i", metadata, at)
            if not 0 <= size <= len(metadata) - at - 4:
                raise _malformed("has metadata that reaches beyond its end")
            at += 4 + size
    except struct.error as error:
        raise _malformed("has metadata that ends too early") from error


def _malformed(what: str) -> InvalidRequest:
    return InvalidRequest(f"the share's structure contains a table that {what}")
