"""Broker: put arrays in, get arrays out, in any process and as any framework's, without copying more than once.

Connects on first need and again when a daemon has gone; starts an embedded one if none is there. Thread-safe. After a
fork the child's Broker has a connection of its own. Arrays stay valid when the Broker, their maker and the daemon are
gone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Final, Literal, Unpack, overload

from arraybridge import _core, adapters, devices, discovery, planner, references, tree
from arraybridge.adapters import generic
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.arguments import Wishes, check_text, copy_wish, sizes_of
from arraybridge.connection import UNAVAILABLE, Connection
from arraybridge.errors import BrokerUnavailable, InvalidRequest, UnsupportedArray
from arraybridge.outcomes import Outcomes, seen
from arraybridge.planner import Caps, Converted, Description, Plan
from arraybridge.share import Listed, Share, record_of
from arraybridge.source import Purpose, Source, copied, freeze, placed, placement_of, source_of

_Views = list[_core.View]  # inside the class, `list` is a verb
_COUNT_MAX: Final = 2**63 - 1
_DECIDED_MAX: Final = 256  # dtypes may have any names: those of structs do
_ALIGNED: Final = 255  # address bits that are zero in every block of a broker


class Broker:
    """A connection to arraybridged.

    Args:
        address: the directory of a daemon's sockets, or its socket; None: found as `discovery` says.
        namespace: owns the names and pays for the memory.
        start: what happens if no daemon is there. "auto": one is started and ends by itself when idle; "never":
            BrokerUnavailable; "private": always a new one, of this object alone, that ends with it.
        timeout_s: of every call that names none, and how long put waits for room.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        namespace: str = "default",
        start: discovery.Start = "auto",
        timeout_s: float = 10.0,
    ) -> None:
        if start not in ("auto", "never", "private"):
            raise InvalidRequest(f'start is "auto", "never" or "private", not {start!r}')
        if start == "private" and address is not None:
            raise InvalidRequest("a private broker has no address of somebody else's choice")
        if not isinstance(namespace, str) or not namespace:
            raise InvalidRequest(f"a namespace is a non-empty str, not {namespace!r}")
        check_text(namespace, "a namespace")
        self.namespace: Final = namespace
        self.timeout_s: Final = timeout_s
        self._connection = Connection(address, namespace, start, timeout_s)
        self._outcomes = Outcomes()
        self._decided: dict[tuple[Caps, str, tuple[int, int, int], int, devices.Device], Plan] = {}
        references.remember(self)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A Broker crosses to another process as what it was asked for; there it makes a connection of its own."""
        address, start = self._connection.asked
        if start == "private":
            address, start = self.address, "never"
        return references.remade, (address, self.namespace, start, self.timeout_s)

    def __repr__(self) -> str:
        address = self._connection.address
        return f"<Broker namespace {self.namespace!r}, {f'at {address}' if address else 'not connected'}>"

    def close(self) -> None:
        """Ends the connection, and a private broker. Arrays stay valid; the next call connects again."""
        self._connection.close()

    @property
    def address(self) -> str:
        """Where the broker is: the directory of its sockets. Finds, or starts, it.

        Raises:
            BrokerUnavailable: none is there, and none may or could be started.
        """
        self._connection.core()
        address = self._connection.address
        if address is None:
            raise BrokerUnavailable("the connection was closed meanwhile", code=UNAVAILABLE)
        return address

    @property
    def latest_address(self) -> str | None:
        """Where the broker is, or was before `close`; None before the first call. Connects nowhere."""
        return self._connection.latest_address

    def is_at(self, address: str) -> bool:
        """Whether it is connected to the broker at this address."""
        return self._connection.address == address

    @property
    def last_plan(self) -> Plan | None:
        """How this thread's latest get or convert came about."""
        return self._outcomes.latest

    def put(
        self,
        array: Any,
        name: str | None = None,
        *,
        replace: bool = False,
        sealed: bool = False,
        metadata: bytes | None = None,
    ) -> Share:
        """Publishes an array, or a dict, list or tuple of arrays (nested as you like), as one immutable share.

        Copies once, and not at all what was born in broker memory (`empty`, a `convert` result). Such an array is the
        share from now on and must not be written to any more: NumPy's turns read-only; take a new `empty` for the next
        frame. `sealed=True` copies, into memory that nobody can write.

        Args:
            array: of NumPy, torch, TensorFlow or JAX, a Share, a View, or whatever speaks DLPack, the array interface or
                the buffer protocol (PEP 3118). Any shape of up to 64 dimensions and any strides; no lists of numbers.
            name: None lets the broker choose; such a share goes when its maker has gone and nobody reads it.
            metadata: bytes of your own, handed on as they are.

        Raises:
            ShareExists: the name is taken; `replace=True` publishes the next generation instead.
            UnsupportedArray, UnsupportedDtype: nobody could read it.
            OutOfMemory: no room until `timeout_s`; the message has the numbers.
            BrokerUnavailable: no daemon answers. PermissionDenied: the namespace is not for this process.
            InvalidRequest: a name, a tree or metadata that cannot be.
        """
        if name is not None and (not isinstance(name, str) or not name):
            raise InvalidRequest("a name is a non-empty str; None lets the broker choose one")
        check_text(name or "", "a name")
        for word, wish in (("replace", replace), ("sealed", sealed)):
            if not isinstance(wish, bool):
                raise InvalidRequest(f"{word} is True or False, not {wish!r}")
        if metadata is not None and not isinstance(metadata, bytes):
            raise InvalidRequest(f"metadata is bytes, not {type(metadata).__name__}")
        structure, leaves = tree.flatten(array)
        sources = [source_of(leaf) for leaf in leaves]
        purpose = Purpose(sealed, name or "", structure, metadata or b"")

        def published(core: _core.Core) -> _core.ShareInfo:
            # Both in one: after a broker's end the bytes have to be placed anew, too.
            born_there = None if sealed else placement_of(core, sources)
            placement = born_there or placed(core, sources, purpose)
            info = core.publish(placement, purpose.name, replace, sealed, structure, purpose.metadata)
            if born_there is not None:
                freeze(sources)
            return info

        try:
            return Share(self, self._connection.ask(published))
        except InvalidRequest as refusal:
            if len(leaves) == 1 or refusal.reason not in ("TOO_LARGE", "TOO_MANY"):
                raise
            way_out = f"{refusal.message}; put the tree in parts, or arrays of one shape as one array"
            raise InvalidRequest(way_out, refusal.code, refusal.reason) from None

    @overload
    def get(
        self,
        name: str | Share,
        framework: str = ...,
        *,
        wait: float | None = ...,
        explain: Literal[True],
        **wishes: Unpack[Wishes],
    ) -> Converted: ...
    @overload
    def get(
        self,
        name: str | Share,
        framework: str = ...,
        *,
        wait: float | None = ...,
        explain: bool = ...,
        **wishes: Unpack[Wishes],
    ) -> Any: ...
    def get(
        self,
        name: str | Share,
        framework: str = "numpy",
        *,
        wait: float | None = None,
        copy: bool | None = None,
        require: Literal["zero-copy"] | None = None,
        device: object = None,
        allow_downcast: bool = False,
        explain: bool = False,
    ) -> Any:
        """The share as arrays of `framework`: its newest generation by name, exactly this one by Share.

        Zero-copy: NumPy, JAX and TensorFlow read the broker's memory, NumPy arrays are read-only; torch gets a
        copy-on-write mapping of its own, so that writes never reach anybody else.

        Shape, dtype and every bit are those of what was put; strides are compact row-major. A share of a tree is the same
        tree of arrays. The arrays stay valid when this object, the share's maker and the daemon are gone.

        Args:
            framework: "numpy", "torch", "tensorflow", "jax", or a MemoryType.
            wait: seconds to wait for a name that is not there yet; Ctrl-C ends it. Nobody waits for a Share.
            copy: True: private writable memory; False, or require="zero-copy": share or raise.
            device: "cpu", "cuda", "cuda:1", a GPU's number in this process or its UUID; None: where the share is, if the
                framework has arrays there.
            allow_downcast: permits a narrowing that the framework would do silently.
            explain: returns Converted(array, plan).

        Raises:
            ShareNotFound: no such share. BrokerTimeout: not even after `wait`.
            BrokerUnavailable: no daemon answers. InvalidRequest: the arguments make no sense.
            InvalidMemoryType, FrameworkNotAvailable: nobody knows this framework, or it is not installed.
            UnsupportedDtype: the framework has no such dtype, or would narrow it.
            UnsupportedArray: a rank or layout that the framework cannot hold.
            DeviceUnavailable, InvalidDevice: no such device here, or none where the framework has arrays.
            ZeroCopyUnavailable: a copy was forbidden and is needed.
        """
        target = adapters.named(framework)
        caps = target.caps()
        info, views = self._acquired(name, caps.private and not copy, wait or 0.0)
        plain = copy is None and require is None and device is None and not allow_downcast
        if plain and not explain and len(views) == 1 and not info.structure:
            view = views[0]
            known = self._decided.get((caps, view.dtype, view.dtype_code, view.ndim, view.device))
            if known is not None and view.compact and not view.address & _ALIGNED:
                self._outcomes.note(known)
                return seen(target, view, known)
        copy = copy_wish(copy, require)
        plans: list[Plan] = []

        def delivered(view: _core.View) -> Any:
            described = generic.described(view, "share", info.kind)
            chosen = planner.plan(
                described, caps, copy=copy, device=device, allow_downcast=allow_downcast, gpus=_gpus(device)
            )
            plans.append(chosen)
            if plain and chosen.zero_copy:
                if len(self._decided) >= _DECIDED_MAX:
                    self._decided.clear()
                self._decided[caps, view.dtype, view.dtype_code, view.ndim, view.device] = chosen
            return seen(target, self._delivered(view, chosen, caps), chosen)

        result = tree.mapped(delivered, info.structure, views)
        return self._outcomes.told(result, plans, copy, explain)

    @overload
    def convert(
        self, array: Any, framework: str, *, explain: Literal[True], **wishes: Unpack[Wishes]
    ) -> Converted: ...
    @overload
    def convert(self, array: Any, framework: str, *, explain: bool = ..., **wishes: Unpack[Wishes]) -> Any: ...
    def convert(
        self,
        array: Any,
        framework: str,
        *,
        device: object = None,
        copy: bool | None = None,
        require: Literal["zero-copy"] | None = None,
        allow_downcast: bool = False,
        explain: bool = False,
    ) -> Any:
        """The array, or tree of arrays, as `framework`'s, inside this process; shared if memory allows, else one copy.

        The copy lies in broker memory, so a later `put` of the result copies nothing.

        Raises:
            UnsupportedArray, UnsupportedDtype, DeviceUnavailable: the target cannot hold it.
            ZeroCopyUnavailable: `copy=False` or require="zero-copy", and a copy is needed.
        """
        target = adapters.named(framework)
        copy = copy_wish(copy, require)
        plans: list[Plan] = []

        def converted(leaf: Any) -> Any:
            caps = target.caps()
            source = source_of(leaf, private=caps.private and not copy)
            chosen = planner.plan(
                source.description, caps, copy=copy, device=device, allow_downcast=allow_downcast, gpus=_gpus(device)
            )
            plans.append(chosen)
            if chosen.route == "identity":
                return leaf
            if chosen.route == "hand_over":
                return seen(target, source.view(), chosen)
            return seen(target, self._placed_view(source, chosen, caps), chosen)

        structure, leaves = tree.flatten(array)
        return self._outcomes.told(tree.mapped(converted, structure, leaves), plans, copy, explain)

    def plan(
        self,
        array: Any,
        framework: str,
        *,
        device: object = None,
        copy: bool | None = None,
        allow_downcast: bool = False,
    ) -> Plan:
        """What convert would do with this one array, and why. Nothing moves."""
        caps = adapters.named(framework).caps()
        described = source_of(array, private=caps.private and not copy).description
        return planner.plan(
            described, caps, copy=copy, device=device, allow_downcast=allow_downcast, gpus=_gpus(device)
        )

    def empty(self, shape: int | Sequence[int], dtype: Any, framework: str = "numpy", *, device: object = None) -> Any:
        """A writable array in broker memory, of undefined content: publishing it with `put` copies nothing.

        Compact row-major, at an address that is a multiple of 256 bytes.

        Args:
            shape: sizes, in elements; an integer is one dimension.
            dtype: a name, a dtype of any of the frameworks, or whatever numpy.dtype accepts.
            device: as `get` takes it; None: the host.

        Raises:
            InvalidRequest: no shape. UnsupportedDtype: no dtype, or none of this framework.
            OutOfMemory: no room until `timeout_s`.
            UnsupportedArray: arrays of this framework cannot be written (JAX, TensorFlow).
        """
        target = adapters.named(framework)
        caps = target.caps()
        if caps.read_only == "immutable":
            reason = f"arrays of {caps.name} cannot be written: compute, and put the result"
            raise UnsupportedArray("array", caps.name, "place", reason)
        name = planner.dtype_name(dtype)
        sizes = sizes_of(shape)
        code = planner.CODES.get(name, (0, 0, 1))
        if name not in planner.CODES:
            name, code, more = numpy_adapter.traveling(dtype)
            sizes += more
        if max(sizes, default=0) > _COUNT_MAX or math.prod(sizes) * code[1] // 8 > _COUNT_MAX:
            raise InvalidRequest(f"an array of shape {sizes} has more bytes than there are addresses")
        gpus = _gpus(device)
        where = devices.wished(device, gpus, "share", caps.name) or devices.HOST
        room = Description("share", name, code, sizes, None, 0, False, device=where)
        chosen = planner.plan(room, caps, device=devices.named(where), gpus=gpus)
        placement = self._connection.ask(lambda core: core.empty([(name, code, sizes)], device=where))
        return seen(target, placement.views[0], chosen)

    def withdraw(self, name: str | Share) -> None:
        """Takes a share off its name. Who holds it keeps it; its bytes go when nobody does.

        Raises:
            ShareNotFound: no such share.
        """
        if isinstance(name, str) and name:
            check_text(name, "a name")
            return self._connection.ask(lambda core: core.withdraw(name))
        if not isinstance(name, Share):
            raise InvalidRequest("a share is withdrawn by its non-empty name, or by a Share")
        self._check_mine(name)
        return self._connection.ask(lambda core: core.withdraw("", name.id, name.generation, name.broker_id))

    def list(self, prefix: str = "") -> Sequence[Listed]:
        """The shares of this namespace whose names start with `prefix`."""
        if not isinstance(prefix, str):
            raise InvalidRequest(f"a prefix is a str, not {type(prefix).__name__}")
        check_text(prefix, "a prefix")
        # A row does not say which life of the broker it is of.
        rows, server = self._connection.ask(lambda core: (core.list(prefix), core.server_info()))
        return [Listed(Share(self, record_of(row.pop("share"), server["broker_id"])), **row) for row in rows]

    def stats(self) -> dict[str, int]:
        """The broker's numbers (shares, leases, bytes), and under `client_...` those of this connection."""
        numbers = dict(self._connection.ask(lambda core: core.stats()))
        own = self._connection.ask(lambda core: core.client_stats())
        return {**numbers, **{f"client_{name}": number for name, number in own.items()}}

    def flush(self) -> None:
        """Tells the broker now what this process no longer reads; otherwise it learns in batches."""
        self._connection.ask(lambda core: core.flush())

    def views(self, share: Share, *, private: bool = False) -> _Views:
        """The share's arrays as Views: read-only, or with `private` copy-on-write in a mapping of their own."""
        return self._acquired(share, private, 0.0)[1]

    def _acquired(self, name: str | Share, private: bool, wait: float) -> tuple[_core.ShareInfo, _Views]:
        if isinstance(name, str) and name:
            check_text(name, "a name")
            return self._connection.acquire(name, private=private, wait_s=wait)
        if not isinstance(name, Share):
            raise InvalidRequest("a share is asked for by a non-empty name, or by a Share")
        self._check_mine(name)
        # No wait: what this reference means is there, or has gone for good.
        return self._connection.acquire("", name.id, name.generation, private, broker_id=name.broker_id)

    def _check_mine(self, share: Share) -> None:
        if share.namespace != self.namespace:
            raise InvalidRequest(f"the share is of namespace {share.namespace!r}, this Broker of {self.namespace!r}")

    def _placed_view(self, source: Source, chosen: Plan, caps: Caps) -> _core.View:
        by_the_way = chosen.dtype != source.description.dtype or chosen.dtype in caps.by_value
        if by_the_way and source.description.fill is None:
            # The narrowing, or the framework, makes the one copy; it ends outside broker memory.
            return copied(source.view(), chosen, caps)
        where = devices.of(chosen.device)
        # What lies in broker memory already is as good as a copy there, but for who asked for one.
        fresh = where != source.description.device or planner.COPY_REQUESTED in chosen.reasons

        def found(core: _core.Core) -> _core.Placement:
            born_there = None if fresh else placement_of(core, [source])
            return born_there or placed(core, [source], device=where)

        room = self._connection.ask(found).views[0]
        return copied(room, chosen, caps) if by_the_way else room

    def _delivered(self, view: _core.View, chosen: Plan, caps: Caps) -> _core.View:
        """A share's View as the plan says: this one, a copy in this process's host memory, or one in the broker's on a
        GPU."""
        where = devices.of(chosen.device)
        if chosen.zero_copy or where == devices.HOST:
            return copied(view, chosen, caps)
        return self._connection.ask(lambda core: core.place([view], device=where)).views[0]


def _gpus(wish: object) -> Sequence[str]:
    """The GPUs that a wish may mean; no driver is asked about the host."""
    return () if wish is None or wish == "cpu" else _core.gpus()
