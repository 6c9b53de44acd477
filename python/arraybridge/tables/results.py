# SPDX-License-Identifier: Apache-2.0
"""The result of a get of a table, and its plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from arraybridge import _core
from arraybridge.arrays import devices
from arraybridge.errors import InvalidRequest, UnsupportedArray, ZeroCopyUnavailable
from arraybridge.planner import COPY_REQUESTED, Caps, Plan, Route
from arraybridge.tables.libraries import LABELLED, TABLE, Copied, made
from arraybridge.tables.nodes import Description
from arraybridge.tables.table import Show, Table

if TYPE_CHECKING:
    from arraybridge._core import View

_REASONS_MAX: Final = 8
_NO_LIBRARY: Final = ("", TABLE, LABELLED)


class Wishes(Protocol):
    """The options of a get that hold for tables."""

    @property
    def caps(self) -> Caps:
        """Of the framework of arrays."""

    @property
    def copy(self) -> bool | None:
        """As in Broker.get."""

    @property
    def library(self) -> str:
        """One of NAMES; "": the result is a Table."""

    @property
    def column(self) -> str | None:
        """The one column that is wanted; None: all."""


def table_of(found: Any) -> Table:
    """The result of a get with TABLE, or a View of one array, as a Table.

    Raises:
        UnsupportedArray: it is neither, or an array that Arrow lacks.
    """
    if isinstance(found, Table):
        return found
    if isinstance(found, _core.View):
        return Table.of_array(found)
    raise UnsupportedArray("share", "arrow", "hand_over", "a tree is not a table: use share.to(framework), and pass its parts")


def shown(
    description: Description, views: list[View], wishes: Wishes, show: Show, one: Callable[[View], tuple[Any, Plan, object]]
) -> tuple[Any, Plan]:
    """The table, or its one column, as the options say, and its plan. `show`: makes an array of a column, and reports its plan.
    `one`: makes it, and returns the plan.

    Raises:
        InvalidRequest: the description does not fit the bytes; no such column; a copy that the library cannot write.
        ZeroCopyUnavailable: copy=False, and the library copies. Errors of `Table.__getitem__`.
    """
    name = wishes.library or wishes.caps.name
    table = Table.of(description, views, name, show)
    if wishes.column is not None:
        table = table.column(wishes.column)
    if wishes.library in _NO_LIBRARY:
        whole = table.kind == "table" or wishes.library
        return (table, _plan(name, table, (), wishes)) if whole else _array(table, one)
    made_of, copied = made(wishes.library, table)
    plan = _plan(name, table, copied, wishes)
    if plan.copies and wishes.copy is False:
        raise ZeroCopyUnavailable("share", name, "hand_over", "; ".join(plan.reasons), plan)
    return (_private(made_of, name) if wishes.copy else made_of), plan


def _array(table: Table, one: Callable[[View], tuple[Any, Plan, object]]) -> tuple[Any, Plan]:
    """The one column as an array, and the plan of the array."""
    plans: list[Plan] = []

    def show(view: View) -> Any:
        made, chosen, _ = one(view)
        plans.append(chosen)
        return made

    return table.showing(show).array(), plans[0]


def _plan(name: str, table: Table, copied: Sequence[Copied], wishes: Wishes) -> Plan:
    reasons = [f"no_foreign_memory: column {each.name!r}: {each.reason}" for each in copied[:_REASONS_MAX]]
    if len(copied) > _REASONS_MAX:
        reasons.append(f"no_foreign_memory: {len(copied) - _REASONS_MAX} more columns are copied")
    nbytes = sum(each.nbytes for each in copied)
    if wishes.copy and wishes.library not in _NO_LIBRARY:
        reasons, nbytes = [COPY_REQUESTED], table.nbytes
    route: Route = "place" if reasons else "hand_over"
    copies = 1 if reasons else 0
    return Plan("share", name, devices.named(devices.HOST), route, "host-shm", copies, nbytes, not copies, "table", tuple(reasons))


def _private(result: Any, library: str) -> Any:
    if library == "pandas":
        return result.copy()
    raise InvalidRequest(f"tables of {library} cannot be written: leave out copy=True, or get it as 'pandas'")
