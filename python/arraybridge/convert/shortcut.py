"""The short way for ordinary arrays: compact host memory of a framework's own array class, with nothing to say about it.

The careful way describes an array in Python, which takes 20 times as long as handing it over. Here the extension alone
looks at it; whatever is unusual makes the framework or the extension raise, and takes the careful way. A plan is decided
once for all arrays that are alike.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Final

from arraybridge import _core, adapters, counts
from arraybridge.adapters import Adapter
from arraybridge.classes import memory_type_of
from arraybridge.planner import Caps, Plan

Maker = Callable[[Any], _core.View]
# What is wanted, by its source's framework alone, and what its plan depends on; or a View, as a Maker has it.
Straight = Callable[[Any], tuple[Any, Hashable] | _core.View]
Show = Callable[[_core.View], Any]
Key = tuple[Any, ...]  # the array's class first, then whatever else was said
Count = Iterator[int]  # moved on for every array that goes this way
Decided = tuple[Plan, Show | None, Count]  # no Show: the array itself is wanted
Plans = dict[Hashable, Decided]  # by View.traits, and by what a Straight says
# From arrays of one class to those of one framework, as it is configured now: how to read them, its caps now (None: they
# never change), its caps when the plans were made, and those.
Road = tuple[Maker | Straight, Callable[[], Caps] | None, Caps, Plans]
_PLANS_MAX: Final = 1024
# Array classes of frameworks, which live as long as the process; no class of a user's.
_makers: dict[type, Maker] = {}


class Shortcuts:
    """Plans that hold for every array of the same traits. Thread-safe: a plan is a value."""

    def __init__(self) -> None:
        self._roads: dict[Key, Road] = {}
        # take(array, *wishes): what an array becomes that is like one before, and its plan. None: it takes the careful way,
        # which says in words what may be wrong with it.
        self.take: Final = functools.partial(_core.shortcut, self._roads)

    def learn(self, key: Key, array: Any, target: Adapter, caps: Caps, plan: Plan) -> None:
        """Of an array that took the careful way. What copies or has a word to say takes it every time."""
        if not plan.zero_copy or plan.reasons:
            return
        view = ordinary(array)
        traits = None if view is None else view.traits
        if view is None or traits is None:
            return
        show = None if plan.route == "identity" else quick(target, view.dtype_name)
        road = self._roads.get(key)
        if road is None or road[2] is not caps:
            if len(self._roads) >= _PLANS_MAX:
                self._roads.clear()
            caps_now = None if caps.settled else target.caps
            # copy=False shares what may change, too.
            checks = None if key[-1] is False else _constant(type(array), target)
            read = _straight(type(array), target) or checks or _makers[type(array)]
            road = self._roads[key] = (read, caps_now, caps, {})
        plans = road[3]
        if len(plans) >= _PLANS_MAX:
            plans.clear()
        decided = plans[traits] = plan, show, counts.of_process.free(plan)
        if road[0] is not _makers[type(array)]:
            _decide(plans, road[0], array, decided)


def _decide(plans: Plans, straight: Maker | Straight, array: Any, decided: Decided) -> None:
    """For what the array's own framework says of it, too. What goes wrong there is nobody's business: the array has been
    converted."""
    with contextlib.suppress(Exception):
        found = straight(array)
        if isinstance(found, tuple):
            plans[found[1]] = decided


def quick(target: Adapter, dtype: str) -> Show:
    """What the adapter's `view` does with compact host memory of a dtype, without asking about it every time."""
    found: Callable[[str], Show] | None = getattr(target, "quick", None)
    return target.view if found is None else found(dtype)


def ordinary(array: Any) -> _core.View | None:
    """A View of an array that may be ordinary: it is if its traits are no None. None: look at it carefully."""
    maker = _makers.get(type(array)) or _maker(type(array))
    if maker is None:
        return None
    try:
        return maker(array)
    except Exception:
        return None  # the careful way says in words what is wrong with it


def _maker(kind: type) -> Maker | None:
    framework = memory_type_of(kind)
    if framework is None:
        return None
    found: Maker | None = getattr(adapters.named(framework), "ordinary", _nothing)(kind)
    if found is not None:
        _makers[kind] = found
    return found


def _straight(kind: type, target: Adapter) -> Straight | None:
    """How a framework makes another one's arrays of its own, if that is quicker than a View and no less checked."""
    return _reader("straight", kind, target)


def _constant(kind: type, target: Adapter) -> Straight | None:
    """How arrays that may change become Views for a framework whose arrays are constant."""
    return _reader("constant", kind, target)


def _reader(way: str, kind: type, target: Adapter) -> Straight | None:
    source = adapters.named(str(memory_type_of(kind)))
    found: Callable[[str], Straight | None] | None = getattr(source, way, None)
    return None if found is None else found(target.caps().name)


def _nothing(kind: type) -> None:
    return None
