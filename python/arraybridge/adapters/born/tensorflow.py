# SPDX-License-Identifier: Apache-2.0
"""TensorFlow: it does not give memory back when a tensor ends, but makes the next one there, which readers would see."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

LIBRARIES: Final = ()
REFUSAL: Final = "TensorFlow makes other tensors in the memory of a freed one, which readers would see: a put copies its tensors"


def allocating() -> AbstractContextManager[None]:
    return nullcontext()


def freeze(tensor: Any) -> None:
    """Nothing: its tensors are not born in broker memory."""
