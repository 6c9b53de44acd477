# SPDX-License-Identifier: Apache-2.0
"""pyarrow: its own pools carve arrays out of larger memory, so that it uses the pool of the C library meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from arraybridge.adapters import ensure_module

LIBRARIES: Final = ("libarrow.so",)
REFUSAL: Final = ""


def allocating() -> AbstractContextManager[None]:
    return _system_pool(ensure_module("pyarrow"))


@contextmanager
def _system_pool(pyarrow: Any) -> Iterator[None]:
    before = pyarrow.default_memory_pool()
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    try:
        yield
    finally:
        pyarrow.set_memory_pool(before)


def freeze(array: Any) -> None:
    """Nothing: Arrow's arrays are never written."""
