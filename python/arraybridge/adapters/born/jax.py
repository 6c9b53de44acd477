# SPDX-License-Identifier: Apache-2.0
"""JAX on the CPU: its threads allocate in one library. Only a donated array is ever written."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from arraybridge.adapters import ensure_module

LIBRARIES: Final = ("libjax_common.so", "xla_extension.so")
REFUSAL: Final = ""


def allocating() -> AbstractContextManager[None]:
    ensure_module("jax")
    return nullcontext()


def freeze(array: Any) -> None:
    """A computation to which the array is donated copies it, as JAX does while another library refers to its memory. Such a
    reference is kept while the array lives.
    """
    try:
        reference = array.addressable_data(0).__dlpack__()
    except (AttributeError, RuntimeError, BufferError):
        return
    weakref.finalize(array, _drop, reference).atexit = False


def _drop(reference: object) -> None:
    """The reference ends with its last name."""
