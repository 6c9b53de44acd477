# SPDX-License-Identifier: Apache-2.0
"""Arguments of a Broker's calls, checked before any request is sent."""

from __future__ import annotations

import contextlib
import operator
import reprlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from arraybridge.errors import InvalidRequest

if TYPE_CHECKING:
    from arraybridge.broker.progress import Progress
    from arraybridge.broker.share import Share
    from arraybridge.conversion.ways import Way

Access = Literal["safe", "shared"]
Required = Literal["zero-copy", "resident"]


class Wishes(TypedDict, total=False):
    """Options of every result, as in Broker.get."""

    copy: bool | None
    require: Required | None
    device: object
    allow_downcast: bool


class ReadWishes(Wishes, total=False):
    """The same, and the options for a share's tree and its tables."""

    types: Iterable[type] | None
    column: str | None
    mapped: bool | None


class GetWishes(ReadWishes, total=False):
    """Additional options of Broker.get."""

    wait: float | None
    access: Access
    newer_than: int | Share | None


class ConvertWishes(Wishes, total=False):
    """Additional options of Broker.convert."""

    progress: Progress | None
    via: Way | None


def check_text(text: object, what: str, empty: bool = True) -> None:
    """Raises:
    InvalidRequest: it is no str, or UTF-8 cannot encode it, or it is empty and may not be.
    """
    if not isinstance(text, str) or not (text or empty):
        raise InvalidRequest(f"{what} must be a {'' if empty else 'non-empty '}str, not {reprlib.repr(text)}")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"{what} must be encodable as UTF-8, not {text!r}, which contains half a surrogate pair") from error


def checked_metadata(metadata: bytes | None) -> bytes:
    """The user's own bytes; None: no bytes.

    Raises:
        InvalidRequest: not bytes.
    """
    if metadata is not None and not isinstance(metadata, bytes):
        raise InvalidRequest(f"metadata must be bytes, not {type(metadata).__name__}: encode text with .encode()")
    return metadata or b""


def sizes_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """The sizes of a shape, in elements; an integer is one dimension.

    Raises:
        InvalidRequest: it is not a shape.
    """
    if isinstance(shape, bool):
        raise InvalidRequest(f"a shape must be an integer or a sequence of integers, not {shape}")
    try:
        sizes = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(map(operator.index, shape))
    except TypeError as error:
        raise InvalidRequest(f"a shape must be an integer or a sequence of integers, not {shape!r}") from error
    if min(sizes, default=0) < 0:
        raise InvalidRequest(f"a shape must not have negative sizes: {sizes}")
    return sizes


# Values that contradict copy=True: (argument, default, the other value).
_SAID: Final = (("require", None, "zero-copy"), ("access", "safe", "shared"))


def check_copy(copy: bool | None) -> None:
    """True: copy; False: never copy; None: the cheaper way.

    Raises:
        InvalidRequest: it is none of these.
    """
    if copy is not None and not isinstance(copy, bool):
        raise InvalidRequest(f"copy must be True, False or None, not {copy!r}")


def copy_and_sharing(copy: bool | None, require: str | None, access: str) -> tuple[bool | None, bool]:
    """Combines the three options: whether to copy, and whether the caller promises not to write to memory of a share.

    Raises:
        InvalidRequest: they contradict each other, or have invalid values.
    """
    check_copy(copy)
    for (argument, default, other), word in zip(_SAID, (require, access), strict=True):
        if word == default:
            continue
        if word != other:
            choice = " or ".join("None" if each is None else f'"{each}"' for each in sorted((default, other), key=str))
            raise InvalidRequest(f"{argument} must be {choice}, not {word!r}")
        if copy:
            raise InvalidRequest(f'copy=True and {argument}="{other}" contradict each other: pass one of the two')
    return copy if require is None else False, access == "shared"


def check_seconds(seconds: float, name: str) -> float:
    """Returns the number as a float.

    Raises:
        InvalidRequest: it is not a number of seconds, negative, or more than a float holds.
    """
    if isinstance(seconds, (int, float)) and seconds >= 0:
        with contextlib.suppress(OverflowError):
            return float(seconds)
    raise InvalidRequest(f"{name} must be 0 or more seconds, not {reprlib.repr(seconds)}")


def check_word(word: object, name: str, words: Sequence[str]) -> None:
    """Raises:
    InvalidRequest: it is none of these words.
    """
    if not isinstance(word, str) or word not in words:
        raise InvalidRequest(f"{name} must be one of {list(words)}, not {word!r}")
