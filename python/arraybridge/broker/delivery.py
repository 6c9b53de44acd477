# SPDX-License-Identifier: Apache-2.0
"""A Delivery makes arrays of a framework from shares and from arrays of this process, as their plans say, with at most
one copy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from arraybridge import _core, adapters, counts, planner
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.arguments import Access, Required, copy_and_sharing, sizes_of
from arraybridge.arrays import devices
from arraybridge.arrays.sparse_layout import Layout as SparseLayout
from arraybridge.broker import bundled_tree, notes, one_memory
from arraybridge.broker.connection import Connection
from arraybridge.broker.outcomes import Outcomes, seen
from arraybridge.broker.placing import placed
from arraybridge.broker.progress import Progress
from arraybridge.conversion import records, shortcut, sparse, tree, ways
from arraybridge.conversion.passing import passed
from arraybridge.conversion.source import Source, copied, pulled, source_of
from arraybridge.conversion.uploads import Uploads
from arraybridge.conversion.ways import Way
from arraybridge.errors import DeviceUnavailable, InvalidRequest, UnsupportedArray, UnsupportedDtype, raised_by
from arraybridge.planner import Caps, Description, Plan
from arraybridge.tables import libraries, results, xarrays
from arraybridge.tables.nodes import Description as TableDescription

F = TypeVar("F")
Acquired = tuple[_core.ShareInfo, list[_core.View]]
Decided = dict[Hashable, tuple[Plan, shortcut.Show, _core.PlanCount]]
_Prepared = tuple[tuple[str, planner.Code], shortcut.Show]
Short = tuple[bool, Decided]  # whether a share is mapped copy-on-write, and the plan of each form
DECIDED_MAX: Final = 256  # a bound, because structured dtypes can have any names
_COUNT_MAX: Final = 2**63 - 1
_ALIGNED: Final = 255  # address bits that are zero in every block of a broker


def fast(function: F) -> F:
    """A method that is answered in C where that is possible: _core.FastMethod."""
    method = _core.FastMethod(function, cast(Any, function).__name__)
    return cast(F, functools.update_wrapper(method, cast(Any, function)))


class Wanted(NamedTuple):
    """The form of the results: their framework and the caller's options."""

    target: adapters.Adapter
    caps: Caps
    copy: bool | None
    device: object
    allow_downcast: bool
    private: bool  # a share is mapped copy-on-write
    plain: bool  # only the framework was given: one plan holds for all similar arrays
    note: str  # how a share is read, unless its plan differs
    types: records.Types = None  # the classes for records and enums of a tree; None: all imported ones
    library: str = ""  # of libraries.NAMES, makes the tables; "": they are Tables of the target's arrays
    column: str | None = None  # of a table; None: all
    via: Way | None = None  # the route of the bytes
    in_place: one_memory.InPlace | None = None  # the GPU that reads shares in host memory where they lie

    @classmethod
    def of(
        cls,
        framework: str,
        access: Access = "safe",
        copy: bool | None = None,
        require: Required | None = None,
        device: object = None,
        allow_downcast: bool = False,
        types: Iterable[type] | None = None,
        via: Way | None = None,
        column: str | None = None,
    ) -> Wanted:
        """The options of Broker.get, and `via` of Broker.convert.

        Raises:
            InvalidMemoryType, FrameworkNotAvailable: this framework is unknown, or not installed.
            InvalidRequest: options that contradict each other, or are invalid.
        """
        plain = copy is None and require is None and device is None and not allow_downcast
        plain = plain and types is None and via is None and column is None
        if plain and type(framework) is str and type(access) is str and (known := _settled.get((framework, access))) is not None:
            return known
        target = adapters.named(framework)
        caps = target.caps()
        copy, shared = copy_and_sharing(copy, require, access)
        ways.check_way(via)
        caps = caps.promised if shared else caps
        if plain:
            return _plain(framework, access, caps)
        if device is not None:
            target = getattr(target, "on_named_device", target)
        plain = copy is None and device is None and not allow_downcast and via is None
        note = notes.cut(f"{caps.name} place: {planner.COPY_REQUESTED}" if copy else f"{caps.name} hand_over")
        types_checked = records.checked(types)
        private = caps.private and not copy and (device is None or (isinstance(device, str) and device == "cpu"))
        return cls(target, caps, copy, device, allow_downcast, private, plain, note, types_checked, "", column, via)

    @classmethod
    def of_share(cls, framework: str, access: Access = "safe", mapped: bool | None = None, **wishes: Any) -> Wanted:
        """The options of a call that reads a share. They are checked before it is looked up or received.

        Raises:
            InvalidDevice, DeviceUnavailable: not a device, or none of this process. Errors of `of`.
        """
        library = framework if isinstance(framework, str) and framework in libraries.NAMES else ""
        libraries.check(library)
        wanted = cls.of(libraries.NAMES.get(library, framework), access, **wishes)
        if library:
            wanted = wanted._replace(library=library)
        if wanted.device is None and mapped is None and devices.CPU in wanted.caps.devices:
            return wanted
        where = devices.wished(wanted.device, gpus_for(wanted.device), "share", wanted.caps.name, wanted.caps.own)
        there = one_memory.wished(mapped, where, wanted.copy, wanted.caps)
        if there is None:
            return wanted
        return wanted._replace(in_place=there, private=False, copy=False if there.asked else wanted.copy)

    def planned(self, described: Description) -> Plan:
        """The plan by which an array takes this form.

        Raises:
            UnsupportedArray, UnsupportedDtype, DeviceUnavailable, InvalidDevice, ZeroCopyUnavailable: there is none.
        """
        _, caps, copy, device, allow_downcast, *_, via, _ = self
        gpus = gpus_for(device)
        return ways.planned(
            via, described, caps, copy, device=device, allow_downcast=allow_downcast, gpus=gpus,
            reaches=_core.gpu_reaches,
        )  # fmt: skip

    def assembled(self, layout: SparseLayout, parts: Sequence[Any], source: str, plans: list[Plan], rearranged: str = "") -> Any:
        """The target's sparse array of these parts of its own; adds the plan of a copy that it needs to `plans`.

        Raises:
            UnsupportedArray, ZeroCopyUnavailable: as `sparse.assembled`.
        """
        result, chosen = sparse.assembled(self.target, self.caps.name, layout, parts, source, self.copy, rearranged)
        if chosen is not None:
            plans.append(chosen)
        return result


class Delivery:
    """Makes the results of a Broker, and caches their plans. Thread-safe: plans are values."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outcomes = Outcomes()
        self._shortcuts = shortcut.Shortcuts()
        # The fast path of `converted`: take(array, framework, copy). It notes the plan. For hot paths.
        self.alike: Final = self._shortcuts.take
        self.note: Final = self._outcomes.note
        # By the caps of the target, and by View.traits or `_form`.
        self._decided: Final[dict[Caps, Decided]] = {}
        # By framework, for a get without options: whether it maps privately, and its plans, which are also in
        # `_decided`.
        self.short: Final[dict[str, Short]] = {}
        # Prepared by `empty`, for arrays that differ only in their shape.
        self._prepared: Final[dict[tuple[str, str], _Prepared]] = {}

    @property
    def latest_plan(self) -> Plan | None:
        """The plan of this thread's latest result."""
        return self._outcomes.latest

    def short_for(self, wanted: Wanted, framework: str | None) -> Short | None:
        """The arguments of `_core.try_acquire` for this form; None: there is no plan yet. `framework`: caches them by that
        name.
        """
        decided = self._decided.get(wanted.caps) if wanted.plain else None
        if not decided:
            return None
        short = wanted.private, decided
        if framework is not None and wanted.caps.settled:
            self.short[framework] = short
        return short

    def granted(self, acquired: Acquired, wanted: Wanted, explain: bool = False) -> Any:
        """A share as the array, or tree of arrays, in this form."""
        info, views = acquired
        if wanted.plain and not explain and len(views) == 1 and not info.structure:
            view = views[0]
            known = self._decided.get(wanted.caps, _NOTHING).get(view.traits or _form(view))
            if known is not None:
                try:
                    result = known[1](view)
                except Exception:
                    pass  # the full path reports the error
                else:
                    known[2].add()
                    self._outcomes.note(known[0])
                    return result
        result, plans = self._shown(info, views, wanted)
        self._note(info, plans, wanted)
        return self._outcomes.reported(result, plans, wanted.copy, explain)

    def granted_as(self, acquired: Acquired, framework: str) -> Any:
        """A share as arrays of this framework, without other options."""
        return self.granted(acquired, Wanted.of_share(framework))

    def all_granted(self, found: Sequence[Acquired], wanted: Wanted) -> list[Any]:
        """Each share in this form, in their order."""
        results: list[Any] = []
        plans: list[Plan] = []
        for info, views in found:
            result, its_plans = self._shown(info, views, wanted)
            self._note(info, its_plans, wanted)
            results.append(result)
            plans += its_plans
        if plans:
            self._outcomes.reported(results, plans, wanted.copy, False)
        return results

    def each_shown(self, views: Sequence[_core.View], kind: str, wanted: Wanted) -> list[Any]:
        """Arrays of one share, each in this form; those that are alike have one plan. `kind`: how its memory is opened.

        Raises:
            UnsupportedArray, UnsupportedDtype: the framework cannot hold one of them.
        """
        results: list[Any] = []
        plans: list[Plan] = []
        for view in views:
            result, chosen, count = self._one_shown(view, kind, wanted)
            results.append(result)
            if count is None:
                plans.append(chosen)
            else:
                count.add()
        if plans:
            self._outcomes.reported(results, plans, wanted.copy, False)
        return results

    def converted(self, array: Any, wanted: Wanted, *, explain: bool = False, progress: Progress | None = None) -> Any:
        """An array, or tree of arrays, of this process in this form.

        Raises:
            InvalidRequest: the tree contains no array.
        """
        plans: list[Plan] = []
        uploads = Uploads()

        def made(leaf: Any) -> Any:
            source = one_memory.shown(source_of(leaf, wanted.caps.name, wanted.private), wanted)
            chosen = wanted.planned(source.description)
            plans.append(chosen)
            if chosen.route == "identity":
                return source.array
            duplicate = source.duplicate(chosen)
            if duplicate is not None:
                return duplicate
            handed = chosen.route == "hand_over"
            view = source.shown() if handed else self._placed(source, chosen, wanted.caps, progress, uploads)
            return seen(wanted.target, view, chosen)

        def uploaded() -> None:
            try:
                uploads.make()
            except Exception as error:
                raise raised_by(error, plans[0].source, plans[0].target, "place") from error

        def assembled(apart: sparse.Sparse, parts: list[Any]) -> Any:
            uploaded()  # its framework may read the parts
            own = apart.framework == wanted.caps.name
            if own and all(part is before for part, before in zip(parts, apart.parts, strict=True)):
                return apart.array
            return wanted.assembled(apart.layout, parts, apart.framework, plans, apart.rearranged)

        result = tree.converted(made, array, assembled, wanted.caps.name)
        uploaded()
        if not wanted.copy and wanted.device is None and not wanted.allow_downcast and wanted.via is None:
            key = type(array), wanted.caps.name, wanted.copy
            self._shortcuts.learn(key, array, wanted.target, wanted.caps, plans[0])
        return self._outcomes.reported(result, plans, wanted.copy, explain)

    def empty(self, shape: int | Sequence[int], dtype: Any, framework: str, device: object, pinned: bool = False) -> Any:
        """A writable array with undefined content in broker memory, as in Broker.empty."""
        if not isinstance(pinned, bool):
            raise InvalidRequest(f"pinned must be True or False, not {pinned!r}")
        alike = type(dtype) is str and type(framework) is str and device is None and not pinned
        known = self._prepared.get((framework, dtype)) if alike else None
        if known is not None:
            made = self._connection.empty_array(shape, *known)
            if made is not None:
                return made
        wanted = Wanted.of(framework, device=device)
        caps = wanted.caps
        if caps.read_only == "immutable":
            reason = f"arrays of {caps.name} cannot be written: compute the values, and put the result"
            raise UnsupportedArray("array", caps.name, "place", reason)
        sizes = sizes_of(shape)
        try:
            name, code, more = numpy_adapter.traveling(dtype)
        except UnsupportedDtype as error:
            raise error.between("array", "any") from error.__cause__  # no array of NumPy is converted
        sizes += more
        if max(sizes, default=0) > _COUNT_MAX or math.prod(sizes) * code[1] // 8 > _COUNT_MAX:
            raise InvalidRequest(f"an array of shape {sizes} exceeds the address space")
        gpus = gpus_for(device)
        where = devices.wished(device, gpus, "share", caps.name) or devices.HOST
        if pinned:
            check_pinned(where, caps.name)
        if where[0] not in caps.devices:
            raise _no_arrays(where, caps)
        there = Description("share", name, code, sizes, None, 0, False, device=where)
        chosen = planner.plan(there, caps, device=devices.named(where), gpus=gpus)
        placement = self._connection.ask(lambda core: core.empty([(name, code, sizes)], device=where, pinned=pinned))
        if alike and caps.settled and chosen.zero_copy and where == devices.HOST and name in planner.CODES:
            if len(self._prepared) < DECIDED_MAX:
                self._prepared[framework, dtype] = (name, code), shortcut.quick(wanted.target, name)
        return seen(wanted.target, placement.views[0], chosen)

    def _note(self, info: _core.ShareInfo, plans: Sequence[Plan], wanted: Wanted) -> None:
        """Reports to the broker how a share was read, if this differs from the note of its acquire."""
        if all(each.zero_copy for each in plans):
            return
        note = notes.of_plan(planner.combined(plans))
        if note != wanted.note:
            self._connection.note(info, note)

    def _shown(self, info: _core.ShareInfo, views: Sequence[_core.View], wanted: Wanted) -> tuple[Any, list[Plan]]:
        """A share in this form, and the plan of each of its arrays."""
        plans: list[Plan] = []

        def delivered(view: _core.View) -> Any:
            result, chosen, _ = self._one_shown(view, info.kind, wanted)
            plans.append(chosen)
            return result

        def assembled(layout: SparseLayout | TableDescription, parts: list[Any]) -> Any:
            if isinstance(layout, TableDescription):
                result, chosen = self._table(layout, parts, info.kind, wanted)
                plans.append(chosen)
                return result
            # Checks parts that only the target has: a copy of its own cannot change afterwards.
            sparse.check(layout, [source_of(part, wanted.caps.name).view() for part in parts])
            return wanted.assembled(layout, parts, "share", plans)

        structure, views = bundled_tree.unpacked(info.structure, views)
        shown = tree.unflatten(structure, views, delivered, assembled, wanted.types)
        if not plans:
            plans.append(self._one_shown(views[0], info.kind, wanted)[1])  # of a tree without arrays: of its empty one
        return (xarrays.made(shown) if wanted.library == libraries.LABELLED else shown), plans

    def _table(self, description: TableDescription, views: list[_core.View], kind: str, wanted: Wanted) -> tuple[Any, Plan]:
        def column_shown(view: _core.View) -> Any:
            return self.each_shown([view], kind, wanted)[0]

        return results.shown(description, views, wanted, column_shown, lambda view: self._one_shown(view, kind, wanted))

    def _one_shown(self, view: _core.View, kind: str, wanted: Wanted) -> tuple[Any, Plan, _core.PlanCount | None]:
        """One array of a share in this form, its plan, and how to count it cheaply, if that is known."""
        known = self._decided.get(wanted.caps, _NOTHING).get(view.traits or _form(view)) if wanted.plain else None
        if known is not None:
            try:
                return known[1](view), known[0], known[2]
            except Exception:
                pass  # the full path reports the error
        view, chosen = one_memory.planned(view, kind, wanted, wanted.caps.name)
        if wanted.plain and chosen.zero_copy and chosen.via != "zero-copy-host":
            self._decide(view, wanted, chosen)
        return seen(wanted.target, self._delivered(view, chosen, wanted.caps), chosen), chosen, None

    def _decide(self, view: _core.View, wanted: Wanted, chosen: Plan) -> None:
        form = view.traits or _form(view)
        if form is None:
            return
        if sum(map(len, self._decided.values())) >= DECIDED_MAX:
            self._decided.clear()
            self.short.clear()
        show = shortcut.quick(wanted.target, view.dtype_name) if view.traits else wanted.target.view
        self._decided.setdefault(wanted.caps, {})[form] = chosen, show, counts.of_process.free(chosen)

    def _delivered(self, view: _core.View, chosen: Plan, caps: Caps) -> _core.View:
        """A share's View as planned: the View itself, a copy in this process's host memory, or a copy in broker memory
        on a GPU.
        """
        where = devices.of(chosen.device)
        if chosen.zero_copy or where[0] != devices.CUDA or view.dtype_name != chosen.dtype:
            return self._on_gpu(copied(view, chosen, caps), where)
        return self._connection.ask(lambda core: core.place([view], device=where)).views[0]

    def _placed(self, source: Source, chosen: Plan, caps: Caps, progress: Progress | None, uploads: Uploads) -> _core.View:
        """Makes the one copy of an array of this process, in broker memory if the target's array may lie there;
        `uploads` may still have to execute it.
        """
        source = passed(source, chosen)
        where = devices.of(chosen.device)
        if source.description.pull is not None and where[0] != devices.CUDA:
            return pulled(source, chosen, caps)
        by_the_way = chosen.dtype != source.description.dtype or chosen.dtype in caps.by_value or not chosen.on_shared_memory
        if by_the_way and source.description.fill is None:
            # The narrowing, or the framework, makes the one copy, outside of broker memory.
            return self._on_gpu(copied(source.view(), chosen, caps), where)
        found = source.description
        if where[0] == devices.CUDA and found.device == devices.HOST and found.fill is None and progress is None:
            placement = self._connection.ask(lambda core: core.empty([(found.dtype, found.code, found.shape)], device=where))
            uploads.add(source.view(), placement.views[0])
            return placement.views[0]
        there = where if chosen.on_shared_memory else devices.HOST
        # Arrays in broker memory are copied, too, because their owner may still write to them.
        copy = self._connection.ask(lambda core: placed(core, [source], device=there, progress=progress)).views[0]
        if found.device[0] == devices.CUDA and found.fill is None:
            source.view().complete()  # its framework's stream may still have to copy, and the consumer's would not wait
        return self._on_gpu(copied(copy, chosen, caps), where) if by_the_way else copy

    def _on_gpu(self, view: _core.View, where: devices.Device) -> _core.View:
        """The View, moved to a GPU if it was narrowed on the host for one."""
        if where[0] != devices.CUDA or view.device[0] == devices.CUDA:
            return view
        return self._connection.ask(lambda core: core.place([view], device=where)).views[0]


def _form(view: _core.View) -> Hashable:
    """The key of a plan for a share's array without traits; None for one that is not compact."""
    if not view.compact or view.address & _ALIGNED:
        return None
    return view.dtype_name, view.dtype_code, view.ndim, view.device


def check_pinned(where: devices.Device, framework: str) -> None:
    """Raises:
    InvalidRequest: it would be memory of a GPU. DeviceUnavailable: this process sees no GPU.
    """
    if where != devices.HOST:
        raise InvalidRequest(f"pinned memory is host memory, and device is {devices.named(where)}: pass one of the two")
    if not _core.gpus():
        reason = "pinned memory is registered with a CUDA driver, and arraybridge sees no CUDA GPU here: leave out pinned=True"
        raise DeviceUnavailable("array", framework, "pin", reason)


def _no_arrays(where: devices.Device, caps: Caps) -> DeviceUnavailable:
    """The framework has no arrays in this memory of the broker."""
    way_out = "allocate it for 'numpy', and convert it"
    if devices.CUDA in caps.devices and caps.own is None:
        way_out = "pass device='cuda:0'" if _core.gpus() else "this process sees no GPU: allocate it for 'numpy' or 'torch'"
    return DeviceUnavailable("array", caps.name, "place", f"{caps.name} has no arrays on {devices.named(where)}: {way_out}")


def gpus_for(wish: object) -> Sequence[str]:
    """The GPUs that a device argument may mean; does not ask the driver for the host."""
    return () if wish is None or (isinstance(wish, str) and wish == "cpu") else _core.gpus()


_NOTHING: Final[Decided] = {}
# By framework with constant caps, and by access.
_settled: Final[dict[tuple[str, str], Wanted]] = {}


# One object per value, since there are few: `get` needs no new one each time.
@functools.lru_cache(maxsize=64)
def _plain(framework: str, access: Access, caps: Caps) -> Wanted:
    note = notes.cut(f"{caps.name} hand_over")
    wanted = Wanted(adapters.named(framework), caps, None, None, False, caps.private, True, note)
    if caps.settled and type(framework) is str:
        _settled[framework, access] = wanted
    return wanted
