# SPDX-License-Identifier: Apache-2.0
"""Marks for TensorFlow's AutoGraph, which rewrites every Python function that a tf.function calls. AutoGraph leaves
functions with this attribute unchanged. The marks are set without TensorFlow, which may be imported later or never.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any, Final, TypeVar

_MARK: Final = "autograph_info__"  # the attribute that tf.autograph.experimental.do_not_convert sets
_F = TypeVar("_F")


def unconverted(function: _F) -> _F:
    """The same function, marked."""
    setattr(function, _MARK, None)
    return function


def mark_module(name: str) -> None:
    """Marks every function of this module and every method of its classes. REQUIRES: all of them are defined."""
    for member in vars(sys.modules[name]).values():
        if getattr(member, "__module__", None) != name:
            continue
        for each in (member, *(vars(member).values() if isinstance(member, type) else ())):
            function: Any = getattr(each, "__func__", each)  # of a classmethod or staticmethod
            wrapped = getattr(function, "__wrapped__", function)  # of a method in C
            if isinstance(wrapped, FunctionType):
                unconverted(wrapped)
                unconverted(function)
