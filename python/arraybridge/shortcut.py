"""The short way for ordinary arrays: compact host memory of a framework's own array class, with nothing to say about it.

The careful way describes an array in Python, which takes 20 times as long as handing it over. Here the extension alone
looks at it; whatever is unusual makes the framework or the extension raise, and takes the careful way. A plan is decided
once for all arrays that are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from arraybridge import _core, adapters
from arraybridge.detect import memory_type_of
from arraybridge.planner import Caps, Plan

Maker = Callable[[Any], _core.View]
Key = tuple[Caps, type, int | None, bool | None]  # the int: View.traits
_PLANS_MAX: Final = 1024
# Array classes of frameworks, which live as long as the process; no class of a user's.
_makers: dict[type, Maker] = {}


class Shortcuts:
    """Plans that hold for every array of the same traits. Thread-safe: a plan is a value."""

    def __init__(self) -> None:
        self._plans: dict[Key, Plan] = {}

    def known(self, key: Key) -> Plan | None:
        return self._plans.get(key)

    def learn(self, key: Key, plan: Plan) -> None:
        """Of an array that took the careful way. What copies or has a word to say takes it every time."""
        if key[2] is None or not plan.zero_copy or plan.reasons:
            return
        if len(self._plans) >= _PLANS_MAX:
            self._plans.clear()
        self._plans[key] = plan


def ordinary(array: Any) -> _core.View | None:
    """A View of an array that may be ordinary: it is if its traits are no None. None: look at it carefully."""
    maker = _makers.get(type(array)) or _maker(type(array))
    if maker is None:
        return None
    try:
        return maker(array)
    except Exception:
        return None  # the careful way says in words what is wrong with it


def is_ordinary(array: Any) -> bool:
    """Whether it is of a framework's own class, which lives as long as the process."""
    return (_makers.get(type(array)) or _maker(type(array))) is not None


def _maker(kind: type) -> Maker | None:
    framework = memory_type_of(kind)
    if framework is None:
        return None
    found: Maker | None = getattr(adapters.named(framework), "ordinary", _nothing)(kind)
    if found is not None:
        _makers[kind] = found
    return found


def _nothing(kind: type) -> None:
    return None
