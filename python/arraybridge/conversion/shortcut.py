# SPDX-License-Identifier: Apache-2.0
"""The fast path for ordinary arrays: compact host memory of a framework's own array class, without special properties.

The full path describes an array in Python, which takes 20 times as long as sharing it. On the fast path only the
extension examines it; an unusual array makes the framework or the extension raise, and takes the full path. One plan is
decided for all similar arrays.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable
from typing import Any, Final

from arraybridge import _core, adapters, counts
from arraybridge.adapters import Adapter
from arraybridge.arrays.classes import memory_type_of
from arraybridge.planner import Caps, Plan

Maker = Callable[[Any], _core.View]
# Makes the result from the array of one framework, with the key of its plan; or a View, like a Maker.
Straight = Callable[[Any], tuple[Any, Hashable] | _core.View]
Show = Callable[[_core.View], Any]
Key = tuple[Any, ...]  # the array's class first, then the options
Decided = tuple[Plan, Show | None, _core.PlanCount]  # no Show: the array itself is the result
Plans = dict[Hashable, Decided]  # by View.traits, and by the key of a Straight
# From arrays of one class to those of one framework in its present configuration: the reader, a function for the
# present caps (None: they never change), the caps when the plans were made, and the plans.
Route = tuple[Maker | Straight, Callable[[], Caps] | None, Caps, Plans]
_PLANS_MAX: Final = 1024
# Array classes of frameworks, which live as long as the process; no classes of users.
makers: Final[dict[type, Maker]] = {}


class Shortcuts:
    """Plans that hold for every array with the same traits. Thread-safe: a plan is a value."""

    def __init__(self) -> None:
        self._routes: dict[Key, Route] = {}
        # take(array, *wishes): the result for an array that is like an earlier one, and its plan. None: take the full
        # path, which reports errors.
        self.take: Final = functools.partial(_core.shortcut, self._routes)

    def learn(self, key: Key, array: Any, target: Adapter, caps: Caps, plan: Plan) -> None:
        """Caches the plan of an array that took the full path. Plans with copies or notes are not cached."""
        if not plan.zero_copy or plan.reasons:
            return
        view = ordinary(array)
        traits = None if view is None else view.traits
        if view is None or traits is None:
            return
        show = None if plan.route == "identity" else quick(target, view.dtype_name)
        route = self._routes.get(key)
        if route is None or route[2] is not caps:
            if len(self._routes) >= _PLANS_MAX:
                self._routes.clear()
            caps_now = None if caps.settled else target.caps
            # copy=False also shares memory that may change.
            checks = None if key[-1] is False else _constant(type(array), target)
            read = straight_of(type(array), target) or checks or makers[type(array)]
            route = self._routes[key] = (read, caps_now, caps, {})
        plans = route[3]
        if len(plans) >= _PLANS_MAX:
            plans.clear()
        decided = plans[traits] = plan, show, counts.of_process.free(plan)
        if route[0] is not makers[type(array)]:
            _decide(plans, route[0], array, decided)


def _decide(plans: Plans, straight: Maker | Straight, array: Any, decided: Decided) -> None:
    """Caches the plan also under the key of the array's own framework. Ignores errors, because the array is already
    converted.
    """
    with contextlib.suppress(Exception):
        found = straight(array)
        if isinstance(found, tuple):
            plans[found[1]] = decided


def quick(target: Adapter, dtype: str) -> Show:
    """The adapter's `view` for compact host memory of a dtype, without repeated checks."""
    found: Callable[[str], Show] | None = getattr(target, "quick", None)
    return target.view if found is None else found(dtype)


def ordinary(array: Any) -> _core.View | None:
    """A View of an array; it is ordinary if its traits are not None. None: take the full path."""
    maker = maker_of(type(array))
    if maker is None:
        return None
    try:
        return maker(array)
    except Exception:
        return None  # the full path reports the error


def maker_of(kind: type) -> Maker | None:
    """The function that makes Views of ordinary arrays of a class, and raises for others. None: there is none."""
    return makers.get(kind) or _maker(kind)


def _maker(kind: type) -> Maker | None:
    framework = memory_type_of(kind)
    if framework is None:
        return None
    found: Maker | None = getattr(adapters.named(framework), "ordinary", _nothing)(kind)
    if found is not None:
        makers[kind] = found
    return found


def straight_of(kind: type, target: Adapter) -> Straight | None:
    """A framework's own function to make another's arrays, if it is faster than a View and equally checked."""
    return _reader("straight", kind, target)


def _constant(kind: type, target: Adapter) -> Straight | None:
    """A function that makes Views of arrays that may change, for a framework whose arrays are constant."""
    return _reader("constant", kind, target)


def _reader(way: str, kind: type, target: Adapter) -> Straight | None:
    source = adapters.named(str(memory_type_of(kind)))
    found: Callable[[str], Straight | None] | None = getattr(source, way, None)
    return None if found is None else found(target.caps().name)


def _nothing(kind: type) -> None:
    return None
