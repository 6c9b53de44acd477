# SPDX-License-Identifier: Apache-2.0
"""Plain values of a tree are not arrays, and are part of its structure as JSON.

A value is one member of a JSON object: {"v": null, bool, int, str or finite float}; {"f": "nan", "inf" or "-inf"};
{"c": [real, imaginary]}; {"b": base64}; {"timedelta": [days, seconds, microseconds]}; {"date": ISO 8601};
{"time": [ISO 8601, null, offset, name, null]}; {"datetime": [ISO 8601, fold, offset, name, zone]}. An offset is in
microseconds east of UTC, a name is what tzname() says, a zone is a key of the IANA database.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final
from zoneinfo import ZoneInfo

from arraybridge.errors import InvalidRequest

INT_BITS_MAX: Final = 4096  # of an integer; Python does not read text of more than 4,300 digits

_CLASSES: Final = (
    str, int, float, complex, bool, bytes, Enum, type(None), datetime.datetime, datetime.date, datetime.time,
    datetime.timedelta,
)  # fmt: skip
_NOT_FINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]{1,64}(/[A-Za-z0-9_+-]{1,64}){0,3}")


def is_plain(value: Any) -> bool:
    """True if it is one of these values, or an Enum's. NumPy's scalars are arrays without dimensions, also those that
    subclass Python's numbers.
    """
    return isinstance(value, _CLASSES) and not hasattr(type(value), "__array_interface__")


def encoded(value: Any) -> dict[str, Any]:
    """The value as a node of a structure. REQUIRES: `is_plain`, and not an Enum's.

    Raises:
        InvalidRequest: it would be read as another class or another value.
    """
    write = _WRITERS.get(type(value))
    if write is None:
        kind = type(value).__name__
        reason = f"a value of {kind} would be read as another class: pass a value of the base class of {kind}"
        raise InvalidRequest(reason)
    return write(value)


def decoded(kind: str, body: Any) -> Any:
    """The value of a node. REQUIRES: `kind in KINDS`.

    Raises:
        InvalidRequest: the node, which comes from another process, violates this grammar.
    """
    try:
        return _READERS[kind](body)
    except (ValueError, TypeError, OverflowError, AttributeError) as error:
        raise InvalidRequest(f"the share's structure holds no value of the kind {kind!r}") from error


def _scalar(value: Any) -> dict[str, Any]:
    return {"v": value}


def _integer(value: int) -> dict[str, Any]:
    if value.bit_length() > INT_BITS_MAX:
        raise InvalidRequest(
            f"an int of {value.bit_length()} bits exceeds the {INT_BITS_MAX} of a plain value: pass its bytes (int.to_bytes)"
        )
    return {"v": value}


def _text(value: str) -> dict[str, Any]:
    # JSON writes half surrogate pairs, and reads two adjacent halves as one character.
    if not value.isascii() and json.loads(json.dumps(value)) != value:
        what = f"the text {value[:64]!r} has two halves of a surrogate pair, which would be read as one character"
        raise InvalidRequest(f'{what}: pass its bytes, text.encode("utf-8", "surrogatepass")')
    return {"v": value}


def _float(value: float) -> dict[str, Any]:
    return {"v": value} if math.isfinite(value) else {"f": str(value)}


def _complex(value: complex) -> dict[str, Any]:
    return {"c": [each if math.isfinite(each) else str(each) for each in (value.real, value.imag)]}


def _bytes(value: bytes) -> dict[str, Any]:
    return {"b": base64.b64encode(value).decode()}


def _timedelta(value: datetime.timedelta) -> dict[str, Any]:
    return {"timedelta": [value.days, value.seconds, value.microseconds]}


def _date(value: datetime.date) -> dict[str, Any]:
    return {"date": value.isoformat()}


def _time(value: datetime.time) -> dict[str, Any]:
    offset, name, zone = _zone_of(value)
    if zone is not None:
        raise InvalidRequest(f"a time of day has no offset in the zone {zone}: pass a datetime")
    return {"time": [value.replace(tzinfo=None).isoformat(), value.fold, offset, name, None]}


def _datetime(value: datetime.datetime) -> dict[str, Any]:
    return {"datetime": [value.replace(tzinfo=None).isoformat(), value.fold, *_zone_of(value)]}


def _zone_of(value: datetime.datetime | datetime.time) -> tuple[int | None, str | None, str | None]:
    """Offset, name and zone, as in a node."""
    zone = value.tzinfo
    if zone is None:
        return None, None, None
    kind = type(zone)
    if kind is not datetime.timezone and (kind is not ZoneInfo or zone.key is None):  # type: ignore[attr-defined]
        reason = f"a tzinfo of {kind.__name__} would be read as another class: pass a timezone or a ZoneInfo with a key"
        raise InvalidRequest(reason)
    offset = value.utcoffset()
    key = zone.key if isinstance(zone, ZoneInfo) else None
    return None if offset is None else offset // _MICROSECOND, value.tzname(), key


_WRITERS: Final[Mapping[type, Callable[[Any], dict[str, Any]]]] = {
    type(None): _scalar,
    bool: _scalar,
    int: _integer,
    str: _text,
    float: _float,
    complex: _complex,
    bytes: _bytes,
    datetime.timedelta: _timedelta,
    datetime.date: _date,
    datetime.time: _time,
    datetime.datetime: _datetime,
}


def _as_scalar(body: Any) -> Any:
    if type(body) not in (type(None), bool, int, str, float):
        raise TypeError(type(body).__name__)
    return _finite(body) if type(body) is float else body


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError("JSON has no such number")
    return number


def _as_float(body: Any) -> float:
    if type(body) is not str or body not in _NOT_FINITE:
        raise ValueError("neither a number nor its text")
    return _NOT_FINITE[body]


def _as_complex(body: Any) -> complex:
    real, imaginary = (_finite(each) if type(each) is float else _as_float(each) for each in body)
    return complex(real, imaginary)


def _as_bytes(body: Any) -> bytes:
    return base64.b64decode(body, validate=True)


def _as_timedelta(body: Any) -> datetime.timedelta:
    days, seconds, microseconds = body
    if not all(type(each) is int for each in (days, seconds, microseconds)):
        raise TypeError("not integers")
    return datetime.timedelta(days, seconds, microseconds)


def _as_time(body: Any) -> datetime.time:
    text, fold, offset, name, zone = body
    return datetime.time.fromisoformat(text).replace(tzinfo=_zone(offset, name, zone), fold=fold)


def _as_datetime(body: Any) -> datetime.datetime:
    text, fold, offset, name, zone = body
    return datetime.datetime.fromisoformat(text).replace(tzinfo=_zone(offset, name, zone), fold=fold)


def _zone(offset: Any, name: Any, key: Any) -> datetime.tzinfo | None:
    """The zone of this key; if this process does not know it, a timezone of this offset and name."""
    if offset is None:
        return None
    if type(offset) is not int or type(name) is not str:
        raise TypeError("not an offset, or not a name")
    if key is not None:
        if _ZONE.fullmatch(key) is None:
            raise ValueError("not a key of a zone")
        try:
            return ZoneInfo(key)
        except (LookupError, ValueError, OSError, ImportError):
            pass  # this host's database is older, or missing
    plain = datetime.timezone(offset * _MICROSECOND)
    return plain if plain.tzname(None) == name else datetime.timezone(offset * _MICROSECOND, name)


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "v": _as_scalar,
    "f": _as_float,
    "c": _as_complex,
    "b": _as_bytes,
    "timedelta": _as_timedelta,
    "date": datetime.date.fromisoformat,
    "time": _as_time,
    "datetime": _as_datetime,
}
KINDS: Final = frozenset(_READERS)
