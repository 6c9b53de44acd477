# SPDX-License-Identifier: Apache-2.0
"""What the programs on the simulated GPU share."""

from collections.abc import Callable
from typing import Any


def refused(ask: Callable[[], Any], error: type[Exception], *words: str) -> None:
    try:
        ask()
    except error as told:
        assert all(word in str(told) for word in words), told
    else:
        raise AssertionError(words)
