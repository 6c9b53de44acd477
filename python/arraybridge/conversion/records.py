# SPDX-License-Identifier: Apache-2.0
"""Records and enums of a tree: objects of the user's own classes, identified by the name of the class.

The name comes from the producer and is untrusted. A reader does not import a module or run code of a class for it: it
uses a class that is already imported or that its caller passed, and sets the fields of an object without a constructor
call.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, Flag
from types import MemberDescriptorType, ModuleType
from typing import Any, Final

from arraybridge import autograph
from arraybridge.arrays.classes import arrays_of_container
from arraybridge.errors import InvalidRequest

Types = Sequence[type] | None
_SHOWN_MAX: Final = 200  # characters of names in an error
_AS_A_RECORD: Final = "pass types=[] to get a Record, or the plain value"


class Record(dict[str, Any]):
    """A dataclass or namedtuple of a class that this process does not have: its fields, by name.

    Attributes:
        type_name: the class, as "module:qualified name". It comes from the producer.

    Example:
        >>> Point = collections.namedtuple("Point", "x y")
        >>> share = broker.put(Point(np.zeros(2), np.ones(2)), "point")
        >>> record = broker.get("point", types=[])
        >>> type(record) is arraybridge.Record, list(record)
        (True, ['x', 'y'])
    """

    __slots__ = ("type_name",)

    type_name: str

    @classmethod
    def of(cls, type_name: str, fields: Mapping[str, Any]) -> Record:
        """A Record with these fields."""
        made = cls(fields)
        made.type_name = type_name
        return made

    def __repr__(self) -> str:
        return f"<Record of {self.type_name!r}: {dict(self)}>"


def is_record(value: Any) -> bool:
    """True if it is an object of a dataclass or a namedtuple, and not itself an array."""
    kind = type(value)
    if issubclass(kind, (dict, list)):
        return kind is Record
    return is_record_class(kind)


def is_record_class(kind: type) -> bool:
    """True if its objects are those of a dataclass or namedtuples, and not themselves arrays."""
    if hasattr(kind, "__dlpack__"):
        return False
    return (dataclasses.is_dataclass(kind) or _is_namedtuple(kind)) and arrays_of_container(kind) is None


def fields_of(record: Any) -> tuple[str, list[tuple[str, Any]]]:
    """The name of its class, and its fields in their order. REQUIRES: `is_record`.

    Raises:
        InvalidRequest: a field has no value, or a name that readers refuse.
    """
    kind = type(record)
    if kind is Record:
        return record.type_name, list(record.items())
    found = []
    for name in _field_names(kind):
        if _is_special(name):
            raise InvalidRequest(f"the field {name} of {kind.__name__} has the name of a special attribute of Python: rename it")
        try:
            found.append((name, getattr(record, name)))
        except AttributeError as error:
            raise InvalidRequest(f"the field {name} of {kind.__name__} has no value") from error
    return name_of(kind), found


def member_of(value: Enum) -> tuple[str, list[str]]:
    """The names of an enum's class and of the members of `value`: a Flag may have several, or none.

    Raises:
        InvalidRequest: a Flag has bits that no member has.
    """
    kind = type(value)
    if value.name is not None and value.name in kind.__members__:
        return name_of(kind), [value.name]
    members = [each for each in type(value) if each in value] if isinstance(value, Flag) else []
    if functools.reduce(operator.or_, (each.value for each in members), 0) != value.value:
        raise InvalidRequest(f"{value!r} has bits that no member of {kind.__name__} has")
    return name_of(kind), [str(each.name) for each in members]


def record(name: str, fields: dict[str, Any], types: Types) -> Any:
    """An object of the class of this name with these fields; a Record if this process has no such class, or its objects
    cannot be made without running its code.

    Raises:
        InvalidRequest: the class has other fields in this process.
    """
    kind = _found(name, types)
    if kind is None or not is_record_class(kind) or hasattr(kind, "__del__"):
        return Record.of(name, fields)
    known = _field_names(kind)
    if set(known) != set(fields):
        there, here = (", ".join(each)[:_SHOWN_MAX] or "none" for each in (fields, known))
        raise InvalidRequest(f"the share's {name[:_SHOWN_MAX]} has the fields {there}, this process's class has {here}: {_AS_A_RECORD}")
    if _is_namedtuple(kind):
        return tuple.__new__(kind, [fields[each] for each in known])
    made = _with_fields(kind, fields)
    return Record.of(name, fields) if made is None else made


def member(name: str, names: Sequence[str], value: Any, types: Types) -> Any:
    """The member, or members, of the enum of this name; `value` if this process has no such class.

    Raises:
        InvalidRequest: the class has no such member in this process.
    """
    kind = _found(name, types)
    if kind is None or not issubclass(kind, Enum) or not (names or issubclass(kind, Flag)):
        return value
    missing = [each for each in names if each not in kind.__members__]
    if missing:
        raise InvalidRequest(
            f"the share's {name[:_SHOWN_MAX]} has the member {missing[0][:_SHOWN_MAX]}, which this process's class lacks: {_AS_A_RECORD}"
        )
    if len(names) == 1:
        return kind.__members__[names[0]]
    return functools.reduce(operator.or_, (kind.__members__[each] for each in names), kind(0))


def name_of(kind: type) -> str:
    """The name of a class in a share. The main module of a spawned process is that of its parent."""
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    return f"{module}:{kind.__qualname__}"


def checked(types: Iterable[type] | None) -> Types:
    """The caller's classes for records and enums; None: all imported ones.

    Raises:
        InvalidRequest: one of them is not a class of records or enums, or two have one name.
    """
    if types is None:
        return None
    if isinstance(types, (type, str)) or not isinstance(types, Iterable):
        raise InvalidRequest(f"types must be a sequence of classes, not {types!r}")
    found = tuple(types)
    for each in found:
        if not isinstance(each, type) or not (is_record_class(each) or issubclass(each, Enum)):
            raise InvalidRequest(f"types must contain dataclasses, namedtuples and enums, not {each!r}")
    names = [each.__qualname__ for each in found]
    if len(set(names)) < len(names):
        raise InvalidRequest(f"types must have one class for each name, not {sorted(names)}")
    return found


def _found(name: str, types: Types) -> type | None:
    """The class of this name: among those that the caller passed, else among imported ones. Reads no attribute by
    getattr: the __getattr__ of a module or an object might import something.
    """
    module, _, path = name.partition(":")
    if types is not None:
        return next((each for each in types if each.__qualname__ == path), None)
    holder: Any = sys.modules.get(module)
    if not issubclass(type(holder), ModuleType):
        return None
    names: Mapping[str, Any] = object.__getattribute__(holder, "__dict__")
    for part in path.split("."):
        holder = names.get(part)
        if not issubclass(type(holder), type):
            return None
        names = type.__getattribute__(holder, "__dict__")
    found: type = holder
    return found if name_of(found) == name else None


def _with_fields(kind: type, fields: Mapping[str, Any]) -> Any:
    """An object made without running code of its class; None: its class makes that impossible."""
    try:
        made: object = object.__new__(kind)
        for name, value in fields.items():
            found = next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), None)
            # Only a slot: other descriptors run code.
            if hasattr(type(found), "__set__") and type(found) is not MemberDescriptorType:
                return None
            object.__setattr__(made, name, value)
    except (TypeError, AttributeError):
        return None
    return made


def _field_names(kind: type) -> tuple[str, ...]:
    if _is_namedtuple(kind):
        return tuple(kind._fields)  # type: ignore[attr-defined]
    return tuple(each.name for each in dataclasses.fields(kind))


def _is_namedtuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_make") and hasattr(kind, "_fields")


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def check_field(name: Any) -> str:
    """Checks the name of a field in a structure.

    Raises:
        InvalidRequest: it is not a name, or a special one: an object with __array_interface__ would be read as memory.
    """
    if type(name) is not str or not name.isidentifier() or _is_special(name):
        raise InvalidRequest("the share's structure contains a record with an invalid field name")
    return name


autograph.mark_module(__name__)
