# SPDX-License-Identifier: Apache-2.0
"""How the frameworks' own allocators get memory of the broker, and what keeps an array unchanged that was put where it lies.

A module of this folder represents one framework, as in `arraybridge.adapters`.
"""

from __future__ import annotations

import functools
import importlib
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, cast

from arraybridge.adapters import numpy as numpy_adapter

NAMES: Final = ("torch", "jax", "pyarrow", "tensorflow")


class BornAdapter(Protocol):
    """The interface of a module of this folder.

    Attributes:
        LIBRARIES: how the files of the libraries are called that allocate the memory of arrays; any of them may be missing.
        REFUSAL: why a put copies the framework's arrays whatever allocated them; "": it need not.
    """

    LIBRARIES: tuple[str, ...]
    REFUSAL: str

    def allocating(self) -> AbstractContextManager[None]:
        """In it the framework allocates by these libraries. Imports the framework.

        Raises:
            FrameworkNotAvailable: it is not installed.
        """

    def freeze(self, array: Any, /) -> None:
        """From now on no operation of the framework changes the bytes of this array, which were published."""


@functools.cache
def named(framework: str) -> BornAdapter:
    """The module of one of NAMES."""
    return cast(BornAdapter, importlib.import_module(f"{__name__}.{framework}"))


def freeze(framework: str | None, array: Any) -> None:
    """Keeps the bytes of an array as they are, which are now those of a published share: a NumPy array becomes read-only."""
    if framework == "numpy":
        numpy_adapter.freeze(array)
    elif framework in NAMES:
        named(framework).freeze(array)
