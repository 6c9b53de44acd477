"""Broker: put arrays in, get arrays out, in any process and as any framework's, without copying more than once.

Connects on first need and again when a daemon has gone; starts an embedded one if none is there. Thread-safe. After a
fork the child's Broker has a connection of its own. Arrays stay valid when the Broker, their maker and the daemon are
gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from arraybridge import _core, autograph, counts, exports
from arraybridge.arguments import Access, ConvertWishes, GetWishes, check_seconds, check_text, check_word
from arraybridge.broker import discovery, references
from arraybridge.broker.channel import Channel
from arraybridge.broker.delivery import Acquired, Delivery, Wanted
from arraybridge.broker.progress import Progress
from arraybridge.broker.publication import Publication, entered_alike
from arraybridge.broker.session import Session
from arraybridge.broker.share import Listed, Outcome, Record, Share, record_from, record_of, reference_of
from arraybridge.broker.watch import Kind, Watch
from arraybridge.convert.source import source_of
from arraybridge.convert.ways import Way
from arraybridge.detect import MemoryType
from arraybridge.errors import BrokerError, BrokerTimeout, InvalidRequest, UnsupportedArray
from arraybridge.planner import Converted, Plan

if TYPE_CHECKING:
    import cupy
    import jax
    import numpy
    import tensorflow
    import torch

# Inside the class, `list` is a verb.
_Views = list[_core.View]
_Arrays = list[Any]
_ONLY_ONCE = (
    "a capsule can be read only once, and a plan would use it up: plan for asdlpack(capsule), or convert it with explain=True"
)
Tree = dict[Any, Any] | list[Any] | tuple[Any, ...]


class Broker(Session):
    """A connection to arraybridged.

    Args:
        address: the directory of a daemon's sockets, or its socket; None: found as `discovery` says.
        namespace: owns the names and pays for the memory.
        start: what happens if no daemon is there. "auto": one is started and ends by itself when idle; "never":
            BrokerUnavailable; "private": always a new one, of this object alone, that ends with it.
        timeout_s: of every call that names none, and how long put waits for room.
        token: a secret that opens namespaces which the operator opens to it, beside those that the user may use; None:
            $ARRAYBRIDGE_TOKEN, or what is in the file $ARRAYBRIDGE_TOKEN_FILE.
        direct_channels: channels with one sender and one receiver hand arrays over without calls where that is possible;
            False: each of this Broker's goes through the daemon.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        namespace: str = "default",
        start: discovery.Start = "auto",
        timeout_s: float = 10.0,
        token: str | None = None,
        direct_channels: bool = True,
    ) -> None:
        super().__init__(address, namespace, start, timeout_s, token, direct_channels)
        self._delivery = Delivery(self._connection)
        references.remember(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """It crosses to another process as what it was asked for; there it makes a connection of its own.

        A token stays here: the other process states its own.
        """
        address, start = self._connection.asked
        if start == "private":
            address, start = self.address, "never"
        return remade, (address, self.namespace, start, self.timeout_s, self._connection.direct_channels)

    def reduced(self, address: str | None, share: Record) -> tuple[Any, ...]:
        """As what a Share of this Broker crosses to another process: a reference, which connects nowhere."""
        return _loaded, (address, tuple(share))

    @property
    def last_plan(self) -> Plan | None:
        """How this thread's latest get or convert came about."""
        return self._delivery.latest_plan

    @overload
    def put(
        self,
        array: Any,
        name: str | None = ...,
        *,
        replace: bool = ...,
        sealed: bool = ...,
        metadata: bytes | None = ...,
        progress: Progress | None = ...,
        lifetime: float | None = ...,
        wait: Literal[True] = ...,
    ) -> Share: ...
    @overload
    def put(
        self,
        array: Any,
        name: str,
        *,
        replace: bool = ...,
        sealed: bool = ...,
        metadata: bytes | None = ...,
        progress: Progress | None = ...,
        lifetime: float | None = ...,
        wait: Literal[False],
    ) -> None: ...
    def put(
        self,
        array: Any,
        name: str | None = None,
        *,
        replace: bool = False,
        sealed: bool = False,
        metadata: bytes | None = None,
        progress: Progress | None = None,
        lifetime: float | None = None,
        wait: bool = True,
    ) -> Share | None:
        """Publishes an array, or a tree of arrays, as one immutable share.

        A tree is dicts, lists, tuples, namedtuples and dataclasses, nested as you like. Beside arrays it may have sparse
        arrays and plain values: int, float, complex, bool, str, bytes, None, members of enums, and date, time, datetime
        and timedelta. Plain values travel in the share's description: `limits.structure_bytes_max` of the broker (32,768
        bytes of JSON) bounds them; longer text and bytes go as arrays (`memoryview(data)`).

        Copies once, and not at all what was born in broker memory (`empty`, a `convert` result). Such an array is the
        share from now on and must not be written to any more: NumPy's turns read-only; take a new `empty` for the next
        frame. `sealed=True` copies, into memory that nobody can write. The values of a tensor that requires grad are put
        without its gradient.

        Args:
            array: of NumPy, torch, TensorFlow or JAX, a Share, a View, or whatever speaks DLPack, the array interface or
                the buffer protocol (PEP 3118). Any shape of up to 64 dimensions and any strides; no lists of numbers alone.
                Foreign byte order (big-endian) becomes the machine's own in the copy, as do the fields of structured
                dtypes: the values stay.
                Sparse: SciPy's and CuPy's CSR, CSC and COO, torch's CSR, CSC and COO, JAX's BCOO and BCSR, tf.SparseTensor.
            name: None lets the broker choose; such a share goes when its maker has gone and nobody reads it.
            metadata: bytes of your own, handed on as they are.
            progress: told (bytes done, bytes in all) before, during and after the copy of host memory; nothing is told
                where nothing is copied. Its exceptions end the put.
            lifetime: seconds after which the share loses its name by itself, as `withdraw` would take it; None: when the
                namespace says so, which by default it does not.
            wait: False returns None, without a word from the broker where that is possible: small arrays in host memory
                under new names. Others find the share from then on all the same. What fails, because the name is taken
                for instance, is raised by the next put of this kind, which then does nothing else, by `flush` or by
                `close`.

        Raises:
            ShareExists: the name is taken; `replace=True` publishes the next generation instead.
            UnsupportedArray, UnsupportedDtype: nobody could read it; of a tree, the message begins with the leaf's path.
            OutOfMemory: no room until `timeout_s`; the message has the numbers.
            BrokerTimeout: the daemon did not answer within `timeout_s`, in which copies, and memory that is being made ready,
                do not count; `outcome` tells whether the share is there.
            BrokerUnavailable: no daemon answers. PermissionDenied: the namespace is not for this process.
            InvalidRequest: a name, a tree or metadata that cannot be.
        """
        plain = not (replace or sealed or metadata or progress is not None or lifetime is not None)
        if wait is False and plain and entered_alike(self._connection, array, name):
            return None
        publication = Publication.of(array, name, replace, sealed, metadata, wait, lifetime)
        info = publication.entered(self._connection, progress)
        return None if info is None else Share(self, info)

    def put_many(self, arrays: Mapping[str, Any], *, replace: bool = False, wait: bool = True) -> None:
        """Puts each of these arrays, or trees of arrays, under its name, for about the price of the copies.

        Not all or none: what is put before an error stays. Of the first that fails the others of the dict learn as soon as
        it is known, and are not put then.

        Args:
            wait: returns when the broker has taken all of them, and raises what failed; False: as `put` takes it.

        Raises:
            ShareExists: a name is taken; the message names the first and how many more failed. What else `put` raises.
        """
        try:
            for name, array in arrays.items():
                self.put(array, name, replace=replace, wait=False)
        except BrokerError as error:
            self._connection.confirm_after(error)
        if wait:
            self._connection.confirm()

    @overload
    def get(
        self, name: str | Share, framework: str = ..., *, explain: Literal[True], **wishes: Unpack[GetWishes],
    ) -> Converted: ...  # fmt: skip
    @overload
    def get(
        self, name: str | Share, framework: Literal["numpy", MemoryType.NUMPY] = ..., *,
        explain: Literal[False] = ..., **wishes: Unpack[GetWishes],
    ) -> numpy.ndarray[Any, Any]: ...  # fmt: skip
    @overload
    def get(
        self, name: str | Share, framework: Literal["torch", MemoryType.TORCH], *,
        explain: Literal[False] = ..., **wishes: Unpack[GetWishes],
    ) -> torch.Tensor: ...  # fmt: skip
    @overload
    def get(
        self, name: str | Share, framework: Literal["tensorflow", MemoryType.TENSORFLOW], *,
        explain: Literal[False] = ..., **wishes: Unpack[GetWishes],
    ) -> tensorflow.Tensor: ...  # fmt: skip
    @overload
    def get(
        self, name: str | Share, framework: Literal["jax", MemoryType.JAX], *,
        explain: Literal[False] = ..., **wishes: Unpack[GetWishes],
    ) -> jax.Array: ...  # fmt: skip
    @overload
    def get(
        self, name: str | Share, framework: Literal["cupy", MemoryType.CUPY], *,
        explain: Literal[False] = ..., **wishes: Unpack[GetWishes],
    ) -> cupy.ndarray: ...  # fmt: skip
    @overload
    def get(
        self, name: str | Share, framework: str, *, explain: bool = ..., **wishes: Unpack[GetWishes],
    ) -> Any: ...  # fmt: skip
    def get(
        self,
        name: str | Share,
        framework: str = "numpy",
        *,
        wait: float | None = None,
        access: Access = "safe",
        copy: bool | None = None,
        require: Literal["zero-copy"] | None = None,
        device: object = None,
        allow_downcast: bool = False,
        explain: bool = False,
        types: Iterable[type] | None = None,
    ) -> Any:
        """The share as arrays of `framework`: its newest generation by name, exactly this one by Share.

        Zero-copy: NumPy, JAX and TensorFlow read the broker's memory, NumPy arrays are read-only; torch gets a
        copy-on-write mapping of its own, so that writes never reach anybody else.

        Shape, dtype and every bit are those of what was put; strides are compact row-major. No tensor requires grad, whatever
        was put: call `requires_grad_()`. A share of a tree is the same tree of arrays and plain values. A sparse array is the
        framework's own (NumPy's is SciPy's), over the same dense parts. The arrays stay valid when this object, the share's
        maker and the daemon are gone.

        Args:
            framework: "numpy", "torch", "tensorflow", "jax", or a MemoryType. Type checkers are told of one array of this
                framework; for a tree, pass the name as a variable of type str, and they are told of Any.
            wait: seconds to wait for a name that is not there yet; Ctrl-C ends it. Nobody waits for a Share.
            access: "shared" is the promise not to write to the result: a framework without read-only arrays (torch) then
                reads the broker's memory itself, without a mapping of its own, and a write ends the process (SIGSEGV).
            copy: True: private writable memory; False, or require="zero-copy": share or raise.
            device: "cpu", "cuda", "cuda:1", a GPU's number in this process or its UUID; None: where the share is, if the
                framework has arrays there.
            allow_downcast: permits a narrowing that the framework would do silently.
            explain: returns Converted(array, plan).
            types: the dataclasses, namedtuples and enums that a tree may come back with, found by their names; others come
                back as `arraybridge.Record` and as plain values. None: those of modules that are imported already. Either
                way no module is imported, and no code of a class runs: `__init__` and `__post_init__` do not.

        Raises:
            ShareNotFound: no such share. BrokerTimeout: not even after `wait`; or its maker's work on a GPU has not
                ended (FENCE_PENDING; which maker it is stands in the message).
            BrokerUnavailable: no daemon answers. InvalidRequest: the arguments make no sense.
            InvalidMemoryType, FrameworkNotAvailable: nobody knows this framework, or it is not installed.
            UnsupportedDtype: the framework has no such dtype, or would narrow it.
            UnsupportedArray: a rank or layout that the framework cannot hold.
            DeviceUnavailable, InvalidDevice: no such device here, or none where the framework has arrays.
            ZeroCopyUnavailable: a copy was forbidden and is needed.
        """
        delivery = self._delivery
        plain = copy is None and require is None and device is None and not allow_downcast and access == "safe"
        bare = plain and types is None and wait is None and not explain and type(framework) is str
        short = delivery.short.get(framework) if bare else None
        wanted = None
        if short is None:
            wanted = Wanted.of(framework, access, copy, require, device, allow_downcast, types)
            short = None if explain else delivery.short_for(wanted, framework if bare else None)
        # The short way: found without a call, and alike to an array that took the careful way.
        if short is not None and type(name) is str and (core := self._connection.known_core) is not None:
            if wait is not None:
                check_seconds(wait, "wait")
            held = _core.held(core, name, short[0], short[1])
            if held is not None:
                result, plan = held
                if plan is None:
                    return delivery.granted(result, wanted or Wanted.of(framework))
                delivery.note(plan)
                return result
        wanted = wanted or Wanted.of(framework)
        return delivery.granted(self._acquired(name, wanted.private, wait, wanted.note), wanted, explain)

    def get_many(
        self,
        names: Sequence[str | Share],
        framework: str = "numpy",
        *,
        wait: float | None = None,
        access: Access = "safe",
        copy: bool | None = None,
        require: Literal["zero-copy"] | None = None,
        device: object = None,
        allow_downcast: bool = False,
        types: Iterable[type] | None = None,
    ) -> _Arrays:
        """What `get` gives for each of these, in their order, all or none.

        What this process has found before costs no message; the rest costs one for so many names as the broker takes
        in one (256 unless it was told otherwise). Each is the newest when it was looked for.

        Raises:
            ShareNotFound: one of them is not there. What else `get` raises.
        """
        wanted = Wanted.of(framework, access, copy, require, device, allow_downcast, types)
        if isinstance(names, (str, Share)) or not isinstance(names, Iterable):
            raise InvalidRequest(f"get_many takes a sequence of names or Shares, not {names!r}; get takes one")
        wishes = [reference_of(name, self.namespace) for name in names]
        return self._delivery.all_granted(self._connection.acquire_many(wishes, wanted.private, wait, wanted.note), wanted)

    @overload
    def convert(
        self, array: Any, framework: str, *, explain: Literal[True], **wishes: Unpack[ConvertWishes],
    ) -> Converted: ...  # fmt: skip
    @overload
    def convert(
        self, array: Tree, framework: str, *, explain: bool = ..., **wishes: Unpack[ConvertWishes],
    ) -> Any: ...  # fmt: skip
    @overload
    def convert(
        self, array: object, framework: Literal["numpy", MemoryType.NUMPY], *,
        explain: Literal[False] = ..., **wishes: Unpack[ConvertWishes],
    ) -> numpy.ndarray[Any, Any]: ...  # fmt: skip
    @overload
    def convert(
        self, array: object, framework: Literal["torch", MemoryType.TORCH], *,
        explain: Literal[False] = ..., **wishes: Unpack[ConvertWishes],
    ) -> torch.Tensor: ...  # fmt: skip
    @overload
    def convert(
        self, array: object, framework: Literal["tensorflow", MemoryType.TENSORFLOW], *,
        explain: Literal[False] = ..., **wishes: Unpack[ConvertWishes],
    ) -> tensorflow.Tensor: ...  # fmt: skip
    @overload
    def convert(
        self, array: object, framework: Literal["jax", MemoryType.JAX], *,
        explain: Literal[False] = ..., **wishes: Unpack[ConvertWishes],
    ) -> jax.Array: ...  # fmt: skip
    @overload
    def convert(
        self, array: object, framework: Literal["cupy", MemoryType.CUPY], *,
        explain: Literal[False] = ..., **wishes: Unpack[ConvertWishes],
    ) -> cupy.ndarray: ...  # fmt: skip
    @overload
    def convert(
        self, array: Any, framework: str, *, explain: bool = ..., **wishes: Unpack[ConvertWishes],
    ) -> Any: ...  # fmt: skip
    def convert(
        self,
        array: Any,
        framework: str,
        *,
        device: object = None,
        copy: bool | None = None,
        require: Literal["zero-copy"] | None = None,
        allow_downcast: bool = False,
        via: Way | None = None,
        explain: bool = False,
        progress: Progress | None = None,
    ) -> Any:
        """The array, or tree of arrays, as `framework`'s, inside this process; shared if memory allows, else one copy.

        A tree is what `put` takes, and comes back as the same classes; plain values in it stay, of whatever class. A sparse
        array becomes the framework's own. The copy lies in broker memory, so a later `put` of the result copies nothing; but
        torch's own copy of a tensor that requires grad keeps its gradient, and lies elsewhere.

        What can be written goes to frameworks whose arrays are constant (JAX, TensorFlow, PyArrow) by a copy on the host, or
        shared by copy=False, the promise that nothing writes to it any more. A read-only ndarray counts as what can be
        written unless the owner of its memory says otherwise: its `base` is followed. What is read-only goes to PyTorch,
        which would write to it, by a copy, and not at all by copy=False.

        Args:
            device, copy, require, allow_downcast, explain: as `get` takes them.
            via: how the bytes travel, as convert_memory takes it: "dlpack", "host" or "serialize"; None: the cheapest. The
                plan's `via` says it.
            progress: told (bytes done, bytes in all) of each array that is copied into broker memory on the host.

        Raises:
            UnsupportedArray, UnsupportedDtype, DeviceUnavailable: the target cannot hold it.
            ZeroCopyUnavailable: `copy=False` or require="zero-copy", and a copy is needed.
        """
        if (copy is None or copy is False) and require is None and device is None and not allow_downcast and via is None:
            alike = self._delivery.alike(array, framework, copy)
            if alike is not None:
                self._delivery.note(alike[1])
                return Converted(*alike) if explain else alike[0]
        wanted = Wanted.of(framework, "safe", copy, require, device, allow_downcast, via=via)
        return self._delivery.converted(array, wanted, explain=explain, progress=progress)

    def plan(
        self,
        array: Any,
        framework: str,
        *,
        device: object = None,
        copy: bool | None = None,
        allow_downcast: bool = False,
        via: Way | None = None,
    ) -> Plan:
        """What convert would do with this one array, and why. Nothing moves.

        Raises:
            UnsupportedArray: a capsule, which can be read only once: a plan would use it up. What else `convert` raises.
        """
        if type(array).__name__ == "PyCapsule":
            raise UnsupportedArray("PyCapsule", str(framework), "detect", _ONLY_ONCE)
        wanted = Wanted.of(framework, copy=copy, device=device, allow_downcast=allow_downcast, via=via)
        return wanted.planned(source_of(array, wanted.caps.name, wanted.private).description)

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
        return self._delivery.room(shape, dtype, framework, device)

    def channel(self, name: str, capacity: int | None = None) -> Channel:
        """A queue of arrays between processes: what one sends, another receives, once and in order.

        Connects nowhere: its first `send` or `receive` does. Channels do not share their names with shares.

        Args:
            capacity: arrays, or trees of arrays, that wait in it at most; a sender waits for room. The first process that
                says one decides; None is whatever the others say, 16 if nobody does.

        Raises:
            InvalidRequest: no name, or no capacity.
        """
        return Channel(self, name, capacity)

    def watch(self, kinds: Sequence[Kind] | Kind | None = None, names: str = "") -> Watch:
        """What happens from now on: an iterator of Events, for `for` and for `async for`.

        Args:
            kinds: which are told, of `arraybridge.broker.watch.Kind`: "publish", ["acquire", "refusal"]; None: all.
            names: of shares whose names start so; then nothing is told that has no share, as sessions.

        Raises:
            OutOfMemory: too many watches are open (limits.watchers, limits.watchers_per_uid).
            InvalidRequest: no such kind. BrokerUnavailable: no daemon answers.
        """
        return Watch(self, kinds, names)

    def withdraw(self, name: str | Share) -> None:
        """Takes a share off its name. Who holds it keeps it; its bytes go when nobody does.

        Raises:
            ShareNotFound: no such share.
        """
        reference = reference_of(name, self.namespace)
        self._connection.ask(lambda core: core.withdraw(*reference))

    def outcome(self, error: BrokerTimeout, timeout_s: float | None = None) -> Outcome:
        """What became of a call of this Broker that raised BrokerTimeout: true if it was done after all.

        The daemon does not begin a request whose deadline has passed, so what timed out was not done, with one exception: the
        daemon began it just before. It answers all the same, and this returns that answer, however often it is asked::

            try:
                share = broker.put(array, "frame")
            except BrokerTimeout as error:
                share = broker.outcome(error).share or broker.put(array, "frame")

        Args:
            error: of a `put`, `withdraw` or `send`. Whatever else timed out (`get`, `flush`, ...) was not done, and may be
                called again.
            timeout_s: seconds to wait for the daemon's answer; None: as long as for any call.

        Raises:
            BrokerTimeout: there is still no answer; with the same `request`, so that it can be asked for again.
            BrokerUnavailable: OUTCOME_UNKNOWN: the connection ended before the answer came, or was another process's.
            InvalidRequest: no BrokerTimeout, or no number of seconds.
        """
        if not isinstance(error, BrokerTimeout):
            raise InvalidRequest(f"outcome takes the BrokerTimeout that a call raised, not {error!r}")
        share, why_not = self._connection.outcome(error, self.timeout_s if timeout_s is None else timeout_s)
        return Outcome(why_not is None, None if share is None else Share(self, share), why_not)

    def list(self, prefix: str = "") -> Sequence[Listed]:
        """The shares of this namespace whose names start with `prefix`."""
        if not isinstance(prefix, str):
            raise InvalidRequest(f"a prefix is a str, not {type(prefix).__name__}")
        check_text(prefix, "a prefix")
        # A row does not say which life of the broker it is of.
        rows, server = self._connection.ask(lambda core: (core.list(prefix), core.server_info()))
        return [Listed(Share(self, record_of(row.pop("share"), server["broker_id"])), **row) for row in rows]

    def stats(self) -> dict[str, int]:
        """The broker's numbers (shares, leases, bytes), under `client_...` those of this connection, and under
        `convert_...` how many arrays this process has converted: in all, by each route, with how many copies of how many
        bytes. `arraybridge.conversion_counts()` says it of each pair and reason, and asks no broker.
        """
        numbers = dict(self._connection.ask(lambda core: core.stats()))
        own = self._connection.ask(lambda core: core.client_stats())
        client = {f"client_{name}": number for name, number in own.items()}
        return {**numbers, **client, **{f"convert_{name}": number for name, number in counts.totals().items()}}

    def flush(self) -> None:
        """Tells the broker now what this process no longer reads; otherwise it learns in batches.

        Waits for the GPU work that still may use it, but not for the end of a graph's capture (`arraybridge.capturing`).
        """
        self._connection.ask(lambda core: core.flush())

    def views(self, share: Share, *, private: bool = False, access: Access = "safe") -> _Views:
        """The share's arrays as Views, as `Share.view` describes them: read-only and copied on write by what takes them, with
        `private` copy-on-write in one mapping of their own, with access="shared" the share's own memory."""
        check_word(access, "access", ("safe", "shared"))
        if access == "shared":
            if private:
                raise InvalidRequest('private=True and access="shared" contradict each other')
            return [view.for_immutable_consumer() for view in self.plain_views(share, False)]
        return [exports.protected(view) for view in self.plain_views(share, private)]

    def plain_views(self, share: Share, private: bool) -> _Views:
        """The Views for an adapter, which knows whether its framework writes."""
        return self._acquired(share, private)[1]

    def _acquired(self, name: str | Share, private: bool, wait: float | None = None, note: str = "") -> Acquired:
        if type(name) is str and name and name.isascii():
            return self._connection.acquire(name, 0, 0, private, wait, b"", note)  # what `reference_of` would make of it
        name, id, generation, broker_id = reference_of(name, self.namespace)
        # No wait for a Share: what this reference means is there, or has gone for good.
        return self._connection.acquire(name, id, generation, private, None if id else wait, broker_id, note)


def remade(address: str | None, namespace: str, start: discovery.Start, timeout_s: float, direct_channels: bool = True) -> Broker:
    """The Broker of a pickle."""
    return Broker(address, namespace=namespace, start=start, timeout_s=timeout_s, direct_channels=direct_channels)


def _loaded(address: str, fields: tuple[Any, ...]) -> Share:
    # Touches no broker: schedulers unpickle what they never read.
    record = record_from(fields)
    broker = references.broker_at(address, record.namespace, lambda: remade(address, record.namespace, "never", 10.0))
    return Share(broker, record, address)


autograph.mark_module(__name__)
