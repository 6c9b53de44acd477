"""Records and enums of a tree: objects of the user's own classes, which travel by the class's name.

The name is the producer's word. A reader imports no module and runs no code of a class because a share says so: it takes
a class that is imported already, or one that its caller passed, and sets the fields of an object that no constructor made.
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
from arraybridge.errors import InvalidRequest

Types = Sequence[type] | None
_AS_A_RECORD: Final = "types=[] brings it as a Record, or the plain value"


class Record(dict[str, Any]):
    """A dataclass or namedtuple of a class that this process does not have: its fields, by name.

    Attributes:
        type_name: the class, as "module:qualified name". The producer's word.
    """

    __slots__ = ("type_name",)

    type_name: str

    @classmethod
    def of(cls, type_name: str, fields: Mapping[str, Any]) -> Record:
        made = cls(fields)
        made.type_name = type_name
        return made

    def __repr__(self) -> str:
        return f"<Record of {self.type_name!r}: {dict(self)}>"


def is_record(value: Any) -> bool:
    """Whether it is a dataclass's object or a namedtuple, and no array itself."""
    kind = type(value)
    if issubclass(kind, (dict, list)):
        return kind is Record
    return is_record_class(kind)


def is_record_class(kind: type) -> bool:
    """Whether its objects are dataclasses' or namedtuples, and no arrays themselves."""
    if hasattr(kind, "__dlpack__"):
        return False
    return dataclasses.is_dataclass(kind) or _is_namedtuple(kind)


def fields_of(record: Any) -> tuple[str, list[tuple[str, Any]]]:
    """The name of its class, and its fields in their order. REQUIRES: `is_record`.

    Raises:
        InvalidRequest: a field has no value, or a name that no reader takes.
    """
    kind = type(record)
    if kind is Record:
        return record.type_name, list(record.items())
    found = []
    for name in _field_names(kind):
        if _is_special(name):
            raise InvalidRequest(f"the field {name} of {kind.__name__} has the name of one of Python's own attributes")
        try:
            found.append((name, getattr(record, name)))
        except AttributeError as error:
            raise InvalidRequest(f"the field {name} of {kind.__name__} has no value") from error
    return name_of(kind), found


def member_of(value: Enum) -> tuple[str, list[str]]:
    """The name of an enum's class and those of the members that `value` is of: of a Flag there may be several, or none.

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
    """An object of the class of this name with these fields; a Record where this process has no such class, or a class whose
    objects cannot be made without running its code.

    Raises:
        InvalidRequest: the class has other fields in this process.
    """
    kind = _found(name, types)
    if kind is None or not is_record_class(kind) or hasattr(kind, "__del__"):
        return Record.of(name, fields)
    known = _field_names(kind)
    if set(known) != set(fields):
        there, here = (", ".join(each) or "none" for each in (fields, known))
        raise InvalidRequest(f"the share's {name} has the fields {there}, this process's class has {here}: {_AS_A_RECORD}")
    if _is_namedtuple(kind):
        return tuple.__new__(kind, [fields[each] for each in known])
    made = _with_fields(kind, fields)
    return Record.of(name, fields) if made is None else made


def member(name: str, names: Sequence[str], value: Any, types: Types) -> Any:
    """The member, or members, of the enum of this name; `value` where this process has no such class.

    Raises:
        InvalidRequest: the class has no such member in this process.
    """
    kind = _found(name, types)
    if kind is None or not issubclass(kind, Enum) or not (names or issubclass(kind, Flag)):
        return value
    missing = [each for each in names if each not in kind.__members__]
    if missing:
        raise InvalidRequest(f"the share's {name} has the member {missing[0]}, this process's class has none: {_AS_A_RECORD}")
    if len(names) == 1:
        return kind.__members__[names[0]]
    return functools.reduce(operator.or_, (kind.__members__[each] for each in names), kind(0))


def name_of(kind: type) -> str:
    """How a share names a class. The main module of a spawned process is its parent's."""
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    return f"{module}:{kind.__qualname__}"


def checked(types: Iterable[type] | None) -> Types:
    """The classes that a caller wants records and enums as; None: whatever is imported.

    Raises:
        InvalidRequest: one of them is no class of records or enums, or two have one name.
    """
    if types is None:
        return None
    if isinstance(types, (type, str)) or not isinstance(types, Iterable):
        raise InvalidRequest(f"types is a sequence of classes, not {types!r}")
    found = tuple(types)
    for each in found:
        if not isinstance(each, type) or not (is_record_class(each) or issubclass(each, Enum)):
            raise InvalidRequest(f"types are classes of dataclasses, namedtuples and enums, not {each!r}")
    names = [each.__qualname__ for each in found]
    if len(set(names)) < len(names):
        raise InvalidRequest(f"types have one class for each name, not {sorted(names)}")
    return found


def _found(name: str, types: Types) -> type | None:
    """The class of this name: of those that the caller passed, else of what is imported. No attribute is asked for: a module's
    or an object's __getattr__ might import something."""
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
    """An object that no code of its class has seen; None: its class makes that impossible."""
    try:
        made: object = object.__new__(kind)
        for name, value in fields.items():
            found = next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), None)
            # Only a slot: whatever else sets a value is code.
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
    """A field's name of a structure.

    Raises:
        InvalidRequest: it is none, or one of Python's own: an object that had __array_interface__ would be taken for memory.
    """
    if type(name) is not str or not name.isidentifier() or _is_special(name):
        raise InvalidRequest("the share's structure holds a field of a record without a proper name")
    return name


autograph.mark_module(__name__)
