# SPDX-License-Identifier: Apache-2.0
"""A tree is arrays and plain values nested in containers, in one share. Its structure is stored as JSON.

Grammar of a node: an integer is the index of an array, each at most once; {"d": [[key, node], ...]} a dict in its order;
{"l": [node, ...]} a list; {"t": [node, ...]} a tuple; {"record": [class, [[field, node], ...]]} a dataclass or namedtuple;
{"enum": [class, [member, ...], node]} an Enum and its value; {"sparse": [layout, [node, ...]]} a sparse array and its dense
parts; {"table": ...} a table (`tables.nodes`); everything else a plain value (`plain`). A single array has the empty structure;
a tree without arrays has one array that its structure does not name. Keys are str, int, bool, float or None. An OrderedDict (a
state_dict) comes back as a dict of the same order. Classes are found as `records` says.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

from arraybridge.arrays import sparse_layout
from arraybridge.arrays.classes import is_dense, is_sparse
from arraybridge.arrays.sparse_layout import Layout
from arraybridge.conversion import plain, records, sparse
from arraybridge.conversion.records import Record, Types
from arraybridge.conversion.sparse import Sparse
from arraybridge.errors import BrokerError, InvalidRequest
from arraybridge.tables import incoming, nodes, xarrays

DEPTH_MAX: Final = 64
_COLLISIONS_MAX: Final = 1000
_STEP_MAX: Final = 64  # characters of a step in an error
_KEYS: Final = (str, int, float, bool, type(None))
NO_ARRAY: Final = "a tree without any array has nothing to convert: convert numbers to an array first (numpy.asarray)"
NOTHING: Final = memoryview(b"")  # the array of a tree without arrays, whose structure does not name it
_WAY_OUT: Final = (
    "put the tree in parts, long text and bytes as arrays; a tree this large may have 8 MiB of structure, and no arrays on GPUs"
    " or of dtypes that DLPack lacks"
)
Part = TypeVar("Part")


def flatten(tree: Any, read: Callable[[Any], Any] = lambda leaf: leaf, rearranged: list[str] | None = None) -> tuple[bytes, list[Any]]:
    """The structure of `tree`, and read(leaf) of its leaves in order. A leaf is every part that is neither a container,
    nor a sparse array, nor a plain value in a container. `rearranged`, if given, gets the reason of each sparse array whose
    leaves are not its own parts.

    Raises:
        InvalidRequest: a key, value or container that JSON cannot restore, or nesting deeper than DEPTH_MAX.
        BrokerError: raised by `read`. Both messages begin with the path of the part, for example ['a'][3].
    """
    if not (is_tree(tree) or incoming.is_table(tree) or xarrays.is_labelled(tree)):
        return b"", [read(tree)]
    writer = _Writer(read)
    node = writer.run(writer.node, tree)
    if not writer.leaves:
        writer.leaves.append(read(NOTHING))
    if rearranged is not None:
        rearranged.extend(writer.rearranged)
    return json.dumps(node, separators=(",", ":"), allow_nan=False).encode(), writer.leaves


def unflatten(
    structure: bytes,
    leaves: Sequence[Any],
    show: Callable[[Any], Any] = lambda leaf: leaf,
    assemble: Callable[[Layout | nodes.Description, list[Any]], Any] = lambda layout, parts: (layout, parts),
    types: Types = None,
) -> Any:
    """The tree with show(leaf) of these leaves. The structure comes from another client; errors name its defect.

    Args:
        assemble: makes a sparse array of the results of `show` for its parts, and a table of its leaves.
        types: the classes for records and enums; None: all imported ones.

    Raises:
        InvalidRequest: the structure violates the grammar, names an array twice or one that the share lacks, or a class
            is different in this process.
        BrokerError: raised by `show` or `assemble`. Both messages begin with the path of the part.
    """
    if not structure:
        shown = [show(leaf) for leaf in leaves]
        return shown[0] if len(shown) == 1 else shown
    if structure.startswith(nodes.ALONE):
        return assemble(nodes.Description(structure), list(leaves))
    try:
        node = json.loads(structure, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the share's structure is not readable") from error
    reader = _Reader(leaves, show, assemble, types)
    return reader.run(reader.tree, node)


def converted(function: Callable[[Any], Any], tree: Any, assemble: Callable[[Sparse, list[Any]], Any], target: str = "") -> Any:
    """The tree, of the same classes, with each array replaced by function(array), and each sparse array by assemble(its
    parts, the results of `function`). Inside one process, so namedtuples and dataclasses keep their classes, and plain
    values (numbers, text, None) are kept in every container.

    Args:
        target: the framework of the results; sparse arrays of its own keep the order of their parts.

    Raises:
        InvalidRequest: no array, nesting deeper than DEPTH_MAX, or a container of a class of the user.
        BrokerError: raised by the functions. Both messages begin with the path of the part.
    """
    converter = _Converter(function, assemble, target)
    result = converter.run(converter.tree, tree)
    if not converter.arrays:
        raise InvalidRequest(NO_ARRAY)
    return result


def is_tree(value: Any) -> bool:
    """True if it is a container or a sparse array, and neither an array nor a plain value."""
    if is_dense(type(value)):
        return False
    return isinstance(value, (dict, list, tuple)) or records.is_record(value) or sparse.taken_apart(value) is not None


def with_way_out(refusal: InvalidRequest, structure: bytes) -> InvalidRequest:
    """The broker's refusal of a description that is too large, with a remedy if it is a tree's."""
    if not structure or refusal.reason not in ("TOO_LARGE", "TOO_MANY"):
        return refusal
    return InvalidRequest(f"{refusal.message}; {_WAY_OUT}", refusal.code, refusal.reason)


class _Walk:
    """A walk through a tree. It keeps the steps from the root to the current part, and after an error to the part that
    failed. A step is a key or an index, or a field's name in a tuple of its own.
    """

    too_deep = ""

    def __init__(self) -> None:
        self._steps: list[Any] = []

    def run(self, visit: Callable[[Any], Any], root: Any) -> Any:
        """visit(root). An error names the part that failed."""
        try:
            return visit(root)
        except BrokerError as error:
            if self._steps:
                error.at("".join(map(_step_text, self._steps)))
            raise

    def below(self, step: Any, visit: Callable[[Part], Any], part: Part) -> Any:
        """visit(part), one step below the current part."""
        if len(self._steps) >= DEPTH_MAX:
            raise InvalidRequest(self.too_deep)
        self._steps.append(step)
        made = visit(part)
        self._steps.pop()
        return made


def _step_text(step: Any) -> str:
    text = f".{step[0]}" if type(step) is tuple else f"[{step!r}]"
    return text if len(text) <= _STEP_MAX else f"{text[:_STEP_MAX]}..."


class _Writer(_Walk):
    """Writes the structure."""

    too_deep = f"a tree may be nested {DEPTH_MAX} deep: put the inner parts as shares of their own"

    def __init__(self, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.leaves: list[Any] = []
        self.rearranged: list[str] = []
        self._read = read

    def node(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is dict or kind is OrderedDict:
            return {"d": [[_key(key), self.below(key, self.node, child)] for key, child in tree.items()]}
        if kind is list or kind is tuple:
            return {"l" if kind is list else "t": self._nodes(tree)}
        if is_dense(kind):
            return self._leaf(tree)
        if records.is_record(tree):
            return self._record(*records.fields_of(tree))
        if isinstance(tree, (dict, list, tuple)) and not is_sparse(kind):
            raise InvalidRequest(f"{kind.__name__} would be read as another class: pass a dict, list or tuple")
        if isinstance(tree, Enum):
            return {"enum": [*records.member_of(tree), self._value(tree)]}
        if plain.is_plain(tree):
            return plain.encoded(tree)
        labelled = xarrays.fields_of(tree)  # before tables: a DataArray has Arrow's stream, without its dimensions
        if labelled is not None:
            return self._record(*labelled)
        if incoming.is_table(tree):
            return self._table(tree)
        apart = sparse.taken_apart(tree)
        if apart is not None:
            apart = sparse.canonical(apart)
            if apart.rearranged:
                self.rearranged.append(apart.rearranged)
            parts = zip(apart.layout.part_names, apart.parts, strict=True)
            indices = [self.below((name,), self._leaf, part) for name, part in parts]
            return {"sparse": [sparse_layout.described(apart.layout), indices]}
        return self._leaf(tree)

    def _nodes(self, children: Sequence[Any]) -> list[Any]:
        return [self.below(index, self.node, child) for index, child in enumerate(children)]

    def _value(self, member: Enum) -> Any:
        before = len(self.leaves)
        value = member.value
        if plain.is_plain(value) or type(value) in (list, tuple):
            node = self.below(("value",), self.node, value)
            if len(self.leaves) == before:
                return node
        what = f"the value of {member} is not a plain value, so that a reader without its class could not read it"
        raise InvalidRequest(f"{what}: give the member a plain value, or put the value of another field")

    def _record(self, name: str, fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        return {"record": [name, [[field, self.below((field,), self.node, value)] for field, value in fields]]}

    def _table(self, table: Any) -> dict[str, Any]:
        body, parts = incoming.taken_apart(table)
        first = len(self.leaves)
        self.leaves.extend(map(self._read, parts))
        return {"table": [*body, first, len(parts)]}

    def _leaf(self, leaf: Any) -> int:
        self.leaves.append(self._read(leaf))
        return len(self.leaves) - 1


def _key(key: Any) -> Any:
    if type(key) not in _KEYS:
        raise InvalidRequest(f"a key of a tree must be a str, int, float, bool or None, not {type(key).__name__}: pass str(key)")
    if type(key) is float and not math.isfinite(key):
        raise InvalidRequest(f"a key of a tree must not be {key}: JSON has no such number; pass str(key)")
    return plain.encoded(key)["v"]


class _Reader(_Walk):
    """Makes the tree of a structure, which comes from another process."""

    too_deep = f"the share's structure is nested more than {DEPTH_MAX} deep"

    def __init__(
        self,
        leaves: Sequence[Any],
        show: Callable[[Any], Any],
        assemble: Callable[[Layout | nodes.Description, list[Any]], Any],
        types: Types,
    ) -> None:
        super().__init__()
        self._leaves = leaves
        self._show = show
        self._assemble = assemble
        self._types = types
        # Otherwise a structure that names one array many times would make its reader copy it as often.
        self._seen: set[int] = set()

    def tree(self, node: Any) -> Any:
        if type(node) is int:
            return self._leaf(node)
        if type(node) is not dict or len(node) != 1:
            raise InvalidRequest("the share's structure contains a node that is not a dict, list, tuple, array or plain value")
        [(kind, body)] = node.items()
        if kind in plain.KINDS:
            return plain.decoded(kind, body)
        if type(body) is not list:
            raise InvalidRequest("the share's structure contains a container without a list of children")
        if kind == "l":
            return self._trees(body)
        if kind == "t":
            return tuple(self._trees(body))
        if kind == "d":
            return self._dict(body)
        if kind in ("record", "enum", "sparse", "table"):
            return getattr(self, f"_{kind}")(body)
        raise InvalidRequest(f"the share's structure contains a container of the unknown kind {kind[:64]!r}")

    def _leaf(self, index: int) -> Any:
        return self._show(self._taken(index))

    def _taken(self, index: int) -> Any:
        if not 0 <= index < len(self._leaves):
            raise InvalidRequest(f"the share's structure names array {index} of {len(self._leaves)}")
        if index in self._seen:
            raise InvalidRequest(f"the share's structure names array {index} twice")
        self._seen.add(index)
        return self._leaves[index]

    def _trees(self, nodes: Any) -> list[Any]:
        return [self.below(index, self.tree, child) for index, child in enumerate(nodes)]

    def _dict(self, items: list[Any]) -> dict[Any, Any]:
        # Numbers with one hash are easy to make, and would make the dict quadratic; the hashes of texts are random.
        hashes = [hash(item[0]) for item in items if type(item) is list and item and type(item[0]) in (int, float)]
        if len(hashes) > _COLLISIONS_MAX and len(set(hashes)) < len(hashes) // 8:
            raise InvalidRequest("the share's structure contains a dict of numbers with equal hashes")
        return dict(self._item(child) for child in items)

    def _item(self, item: Any) -> tuple[Any, Any]:
        if type(item) is not list or len(item) != 2 or type(item[0]) not in _KEYS:
            raise InvalidRequest("the share's structure contains a dict entry that is not [key, node]")
        return item[0], self.below(item[0], self.tree, item[1])

    def _field(self, item: Any) -> tuple[str, Any]:
        if type(item) is not list or len(item) != 2:
            raise InvalidRequest("the share's structure contains a field that is not [name, node]")
        name = records.check_field(item[0])
        return name, self.below((name,), self.tree, item[1])

    def _record(self, body: list[Any]) -> Any:
        if len(body) != 2 or type(body[0]) is not str or type(body[1]) is not list:
            raise InvalidRequest("the share's structure contains a record that is not [class, fields]")
        return records.record(body[0], dict(self._field(item) for item in body[1]), self._types)

    def _enum(self, body: list[Any]) -> Any:
        if len(body) != 3 or type(body[0]) is not str or type(body[1]) is not list:
            raise InvalidRequest("the share's structure contains an enum that is not [class, members, value]")
        name, members, value = body
        if not all(type(each) is str for each in members):
            raise InvalidRequest("the share's structure contains an enum whose members are not names")
        return records.member(name, members, self.below(("value",), self.tree, value), self._types)

    def _sparse(self, body: list[Any]) -> Any:
        if len(body) != 2 or type(body[1]) is not list:
            raise InvalidRequest("the share's structure contains a sparse array that is not [layout, parts]")
        layout = sparse_layout.read(body[0])
        names = layout.part_names
        if len(names) != len(body[1]) or not all(type(each) is int for each in body[1]):
            raise InvalidRequest(f"the share's structure contains a sparse array without its {len(names)} parts")
        parts = [self.below((name,), self._leaf, part) for name, part in zip(names, body[1], strict=True)]
        return self._assemble(layout, parts)

    def _table(self, body: list[Any]) -> Any:
        return self._assemble(*nodes.taken(body, self._taken))


def _no_constant(word: str) -> float:
    raise ValueError(f"JSON has no {word}")


class _Converter(_Walk):
    """Makes a tree of the same classes with other arrays."""

    too_deep = f"a tree may be nested {DEPTH_MAX} deep: convert the inner parts alone"

    def __init__(self, function: Callable[[Any], Any], assemble: Callable[[Sparse, list[Any]], Any], target: str) -> None:
        super().__init__()
        self.arrays = 0
        self._function = function
        self._assemble = assemble
        self._target = target

    def tree(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is dict or kind is OrderedDict or kind is Record:
            found = [(key, self._child(key, each)) for key, each in tree.items()]
            return Record.of(tree.type_name, dict(found)) if kind is Record else kind(found)
        if kind is list or kind is tuple:
            return kind(self._child(index, each) for index, each in enumerate(tree))
        if isinstance(tree, tuple) and hasattr(kind, "_make"):
            return kind._make(self._child((name,), each) for name, each in zip(kind._fields, tree, strict=True))
        if records.is_record(tree):
            return self._copied(tree)
        if isinstance(tree, (dict, list, tuple)) and not is_sparse(kind):
            raise InvalidRequest(f"{kind.__name__} is not a tree: pass a dict, list, tuple, namedtuple or dataclass")
        apart = sparse.taken_apart(tree)
        self.arrays += 1
        if apart is None:
            return self._function(tree)
        if apart.framework != self._target:
            apart = sparse.canonical(apart)
        parts = zip(apart.layout.part_names, apart.parts, strict=True)
        made = [self.below((name,), self._function, part) for name, part in parts]
        return self._assemble(apart, made)

    def _child(self, step: Any, child: Any) -> Any:
        return child if plain.is_plain(child) else self.below(step, self.tree, child)

    def _copied(self, record: Any) -> Any:
        kind = type(record).__name__
        try:
            made = copy.copy(record)
        except Exception as error:
            raise InvalidRequest(f"{kind} cannot be copied: {error}") from error
        for each in dataclasses.fields(record):
            if not hasattr(record, each.name):
                raise InvalidRequest(f"the field {each.name} of {kind} has no value")
            # As the __init__ of a frozen dataclass does; no other code has the copy yet.
            object.__setattr__(made, each.name, self._child((each.name,), getattr(record, each.name)))
        return made
