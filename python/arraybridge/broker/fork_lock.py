# SPDX-License-Identifier: Apache-2.0
"""Locks of modules that a forked child can take."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

_Lock = TypeVar("_Lock")


def lock_of(module: dict[str, Any], kind: Callable[[], _Lock]) -> _Lock:
    """Makes the lock for `_lock = lock_of(globals(), threading.Lock)`, and in every forked child another one.

    A thread of the parent, which does not exist in the child, may have held it.
    """

    def renew() -> None:
        module["_lock"] = kind()

    os.register_at_fork(after_in_child=renew)
    return kind()
