"""What callers pass to a Broker, checked before anything is asked of anybody."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Literal, TypedDict

from arraybridge.errors import InvalidRequest


class Wishes(TypedDict, total=False):
    """What may be wished of every result, as Broker.get says."""

    copy: bool | None
    require: Literal["zero-copy"] | None
    device: object
    allow_downcast: bool


def check_text(text: str, what: str) -> None:
    """Raises:
        InvalidRequest: UTF-8 cannot say it.
    """
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} is Unicode text, not {text!r}: half a surrogate pair has no UTF-8") from error


def sizes_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """The sizes of a shape, in elements; an integer is one dimension.

    Raises:
        InvalidRequest: it is no shape.
    """
    if isinstance(shape, bool):
        raise InvalidRequest(f"a shape is an integer or a sequence of integers, not {shape}")
    try:
        sizes = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(map(operator.index, shape))
    except TypeError as error:
        raise InvalidRequest(f"a shape is an integer or a sequence of integers, not {shape!r}") from error
    if min(sizes, default=0) < 0:
        raise InvalidRequest(f"a shape has no negative sizes: {sizes}")
    return sizes


def copy_wish(copy: bool | None, require: str | None) -> bool | None:
    """What the two words for it say together: True, a copy; False, none; None, whatever is cheaper.

    Raises:
        InvalidRequest: they contradict each other, or are none.
    """
    if copy is not None and not isinstance(copy, bool):
        raise InvalidRequest(f"copy is True, False or None, not {copy!r}")
    if require is None:
        return copy
    if require != "zero-copy":
        raise InvalidRequest(f'require is "zero-copy" or None, not {require!r}')
    if copy:
        raise InvalidRequest('copy=True and require="zero-copy" contradict each other')
    return False


def check_seconds(seconds: float, name: str) -> float:
    """The number itself.

    Raises:
        InvalidRequest: it is no number of seconds, or negative.
    """
    if isinstance(seconds, (int, float)) and seconds >= 0:
        return seconds
    raise InvalidRequest(f"{name} is 0 or more seconds, not {seconds!r}")
