# SPDX-License-Identifier: Apache-2.0
"""How often the simulated driver was called for something, and refusals."""

from collections.abc import Callable, Sequence
from typing import Any

from real_packages import calls


def counted(way: Callable[[], Any], names: Sequence[str]) -> tuple[Any, list[int]]:
    """The result, and the number of calls of each name that were made for it."""
    before = [calls(name) for name in names]
    got = way()
    return got, [calls(name) - earlier for name, earlier in zip(names, before, strict=True)]


def refused(ask: Callable[[], Any], error: type[Exception], *words: str) -> Any:
    """It raises this error, whose message has these words. Returns the error."""
    try:
        ask()
    except error as told:
        assert all(word in str(told) for word in words), told
        return told
    raise AssertionError(words)
