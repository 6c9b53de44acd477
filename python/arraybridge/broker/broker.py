# SPDX-License-Identifier: Apache-2.0
"""Broker: put arrays in, get arrays out, in any process and for any framework, with at most one copy.

It connects when it is first needed, and again after a daemon has ended; it starts an embedded daemon if there is none.
Thread-safe. After a fork the child's Broker makes a connection of its own. Arrays stay valid after the Broker, their
maker and the daemon have ended.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from arraybridge import _core, autograph, counts, exports
from arraybridge.arguments import Access, ConvertWishes, GetWishes, Required, check_seconds, check_text, check_word
from arraybridge.arrays.classes import MEMORY_TYPES
from arraybridge.broker import discovery, one_memory, references
from arraybridge.broker.bundle import Bundle, BundleTerms, BundleWriter, Kind as ArrayKind, opened
from arraybridge.broker.delivery import Acquired, Delivery, Wanted, fast
from arraybridge.broker.patterns.pipelines import Pipelines, PutWishes
from arraybridge.broker.progress import Progress
from arraybridge.broker.publication import Publication, entered_alike
from arraybridge.broker.share import Got, Outcome, Record, Share, named_in_errors, record_from, reference_of
from arraybridge.broker.watch import Kind, Watch
from arraybridge.conversion.source import source_of
from arraybridge.conversion.ways import Way
from arraybridge.detect import CupyName, JaxName, NumpyName, TensorflowName, TorchName
from arraybridge.errors import BrokerTimeout, InvalidRequest, UnsupportedArray
from arraybridge.notebook.listing import Listed, Listing
from arraybridge.planner import Converted, Plan

if TYPE_CHECKING:
    import cupy
    import jax
    import numpy
    import tensorflow
    import torch

# Inside the class, `list` is a method.
_Views = list[_core.View]
_Arrays = list[Any]
_ONLY_ONCE = "a capsule can be read only once, and a plan would consume it: plan for asdlpack(capsule), or convert it with explain=True"
Tree = dict[Any, Any] | list[Any] | tuple[Any, ...]


class Broker(Pipelines):
    """A connection to arraybridged.

    Args:
        address: the directory of a daemon's sockets, or its socket; None: found as described in `discovery`.
        namespace: owns the names and is charged for the memory.
        start: what to do if there is no daemon. "auto": start one that ends by itself when idle; "never": raise
            BrokerUnavailable; "private": always start a new one, for this object only, which ends with it.
        timeout_s: of every call without a timeout of its own, and how long put waits for room.
        token: a secret that opens namespaces in addition to those that are open to the user; None: $ARRAYBRIDGE_TOKEN,
            or the content of the file $ARRAYBRIDGE_TOKEN_FILE.
        direct_channels: channels with one sender and one receiver pass arrays without calls where possible; False: arrays
            of this Broker always go through the daemon.
        client: the name of this process in `arraybridgectl ls sessions`, in events and in errors about peers: at most 64
            bytes of UTF-8. None: the script and its arguments, cut to 64 bytes. Values of options and assignments whose
            names tell of a secret (token, password, key, auth and the like) become ***; other arguments are shown. Forked
            children keep a name that is stated; it is not pickled. A worker adds the name of its multiprocessing.Process, any other
            forked child its PID: "prep.py --size 4 (Process-2)".

    Raises:
        InvalidRequest: an invalid argument.

    Example:
        >>> broker = Broker(start="private")    # Broker() finds the broker of this user, or starts one
        >>> broker.put(np.ones(3), "frame").name
        'frame'
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
        client: str | None = None,
    ) -> None:
        super().__init__(address, namespace, start, timeout_s, token, direct_channels, client)
        delivery = self._delivery = Delivery(self._connection)
        self._fast = self._connection, delivery.short, delivery.note, delivery.granted_as  # for `fast`
        references.remember(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the constructor's arguments; the other process makes a connection of its own.

        The token and the name of the client are not pickled: the other process has its own.
        """
        address, start = self._connection.requested
        if start == "private":
            address, start = self.address, "never"
        return remade, (address, self.namespace, start, self.timeout_s, self._connection.direct_channels)

    def _reduced(self, address: str | None, share: Record) -> tuple[Any, ...]:
        """The pickled form of a Share of this Broker: a reference, which does not connect."""
        return _loaded, (address, tuple(share))

    @property
    def last_plan(self) -> Plan | None:
        """The plan of this thread's latest get or convert."""
        return self._delivery.latest_plan

    @overload
    def put(
        self, array: Any, name: str | None = ..., *, progress: Progress | None = ..., wait: Literal[True] = ...,
        **wishes: Unpack[PutWishes],
    ) -> Share: ...  # fmt: skip
    @overload
    def put(
        self, array: Any, name: str, *, progress: Progress | None = ..., wait: Literal[False], **wishes: Unpack[PutWishes],
    ) -> None: ...  # fmt: skip
    def put(
        self,
        array: Any,
        name: str | None = None,
        *,
        replace: bool = False,
        sealed: bool = False,
        metadata: Any = None,
        progress: Progress | None = None,
        lifetime: float | None = None,
        wait: bool = True,
        keep_writing: bool = False,
    ) -> Share | None:
        """Publishes an array, or a tree of arrays, as one immutable share.

        A tree is any nesting of dicts, lists, tuples, namedtuples and dataclasses, with or without arrays. It may contain sparse
        arrays and plain values: int, float, complex, bool, str, bytes, None, members of enums, and date, time, datetime
        and timedelta. A tree of more arrays, or more plain values, than the broker takes in a share's description
        (`limits.arrays_per_share_max`, 1,024; `limits.structure_bytes_max`, 32,768 bytes of JSON) is stored as a bundle,
        in host memory, with up to 8 MiB of JSON; its arrays are always copied. Put longer text and bytes as arrays (`memoryview(data)`).

        Copies once; an array that was born in broker memory (`empty`, a `convert` result) is not copied. Such an array
        becomes the share and must not be written any more: a NumPy array turns read-only; use a new `empty` for the
        next frame. An array that was got or received in this namespace, or a contiguous part of one, is not copied
        either unless this process has written to it: the new share uses the same bytes. `sealed=True` copies into memory
        that no process can write. A tensor that requires grad is put without its gradient.

        Args:
            array: of NumPy, torch, TensorFlow or JAX, a Share, a View, or any object with DLPack, the array interface or the
                buffer protocol (PEP 3118); a table of pandas, polars, pyarrow or DuckDB; of xarray, h5py or zarr. Up to 64
                dimensions, any strides; a list of numbers is a tree of plain values. Foreign byte order (big-endian), also in fields, becomes that of
                the machine: the values stay. Sparse: CSR, CSC, COO of SciPy, CuPy, torch, JAX's BCOO and BCSR, tf.SparseTensor.
            name: None lets the broker choose; such a share ends when its maker has ended and no process reads it.
            metadata: bytes of your own, or plain values in a tree, passed on unchanged.
            progress: called with (bytes done, total bytes) before, during and after the copy of host memory; not called
                if nothing is copied. Its exceptions end the put.
            lifetime: seconds after which the share is withdrawn; None: the lifetime of the namespace, by default none. A
                broker that `Broker()` has started does not end before.
            wait: False returns None without waiting for the broker where possible: for small arrays in host memory
                under new names. Other processes find the share from then on. An error, for instance because the name is
                taken, is raised by your *next* `put(wait=False)`, by `flush` or by `close`. That next array is then not put:
                repeat it.
            keep_writing: True: the array is not the share, and goes on being written. It is copied, except where huge pages map an
                array of `born`: its pages are copied one by one, when they are first written. The share's trace says which.

        Raises:
            ShareExists: the name is taken; `replace=True` publishes the next generation instead.
            UnsupportedArray, UnsupportedDtype: no framework could read it; for a tree, the message begins with the
                leaf's path.
            OutOfMemory: no room until `timeout_s`; the message has the numbers.
            BrokerTimeout: the daemon did not answer within `timeout_s`, not counting copies and the preparation of
                memory; `outcome` tells whether the share exists.
            BrokerUnavailable: no daemon answers. PermissionDenied: the namespace is not open to this process.
            InvalidRequest: an invalid name, tree or metadata.

        Example:
            >>> share = broker.put(np.ones((2, 3)), "frame")
            >>> broker.get("frame").shape    # in any process
            (2, 3)
        """
        if sealed is keep_writing is False and metadata is None and progress is None and lifetime is None:
            put = entered_alike(self._connection, array, name, replace, wait)
            if put is not None:
                return None if put[0] is None else Share(self, put[0])
        publication = Publication.of(array, name, replace, sealed, metadata, wait, lifetime, keep_writing)
        info = publication.entered(self._connection, progress)
        return None if info is None else Share(self, info)

    def put_many(self, arrays: Mapping[str, Any], *, replace: bool = False, wait: bool = True) -> None:
        """Puts each of these arrays, or trees of arrays, under its name, at about the cost of the copies.

        Not all or none: what is put before an error stays. After the first error is known, the rest of the dict is not
        put.

        Args:
            wait: True returns when the broker has processed all of them, and raises their errors; False: as in `put`.

        Raises:
            ShareExists: a name is taken; the message has the first and the number of further errors. Other errors of
                `put`.
        """
        puts = (functools.partial(self.put, array, name, replace=replace, wait=False) for name, array in arrays.items())
        self._put_all(puts, wait)

    @overload
    def get(
        self, name: str | Share, framework: str = ..., *, explain: Literal[True], **wishes: Unpack[GetWishes],
    ) -> Converted: ...  # fmt: skip
    @overload
    def get(
        self, name: str | Share, framework: NumpyName = ..., *, explain: Literal[False] = ..., **wishes: Unpack[GetWishes]
    ) -> numpy.ndarray[Any, Any]: ...
    @overload
    def get(
        self, name: str | Share, framework: TorchName, *, explain: Literal[False] = ..., **wishes: Unpack[GetWishes]
    ) -> torch.Tensor: ...
    @overload
    def get(
        self, name: str | Share, framework: TensorflowName, *, explain: Literal[False] = ..., **wishes: Unpack[GetWishes]
    ) -> tensorflow.Tensor: ...
    @overload
    def get(self, name: str | Share, framework: JaxName, *, explain: Literal[False] = ..., **wishes: Unpack[GetWishes]) -> jax.Array: ...
    @overload
    def get(
        self, name: str | Share, framework: CupyName, *, explain: Literal[False] = ..., **wishes: Unpack[GetWishes]
    ) -> cupy.ndarray: ...
    @overload
    def get(
        self, name: str | Share, framework: str = ..., *, info: Literal[True], explain: bool = ...,
        **wishes: Unpack[GetWishes],
    ) -> Got: ...  # fmt: skip
    @overload
    def get(
        self, name: str | Share, framework: str, *, explain: bool = ..., info: bool = ..., **wishes: Unpack[GetWishes],
    ) -> Any: ...  # fmt: skip
    @fast
    def get(
        self,
        name: str | Share,
        framework: str = "numpy",
        *,
        wait: float | None = None,
        access: Access = "safe",
        copy: bool | None = None,
        require: Required | None = None,
        device: object = None,
        allow_downcast: bool = False,
        explain: bool = False,
        types: Iterable[type] | None = None,
        newer_than: int | Share | None = None,
        info: bool = False,
        column: str | None = None,
        mapped: bool | None = None,
    ) -> Any:
        """The share as arrays of `framework`: by name its newest generation, by Share exactly that one.

        Zero-copy: NumPy, JAX and TensorFlow read the broker's memory, and NumPy arrays are read-only; torch gets a
        copy-on-write mapping of its own, so that its writes reach no other process.

        Shape, dtype and every bit are those of the array that was put; strides are compact row-major. No tensor
        requires grad, whatever was put: call `requires_grad_()`. A share of a tree is the same tree of arrays and plain
        values. A sparse array is the framework's own (for NumPy SciPy's), over the same dense parts. A table is an
        `arraybridge.Table` of the framework's arrays. All stay valid after this object, the share's maker and the daemon.

        Args:
            framework: "numpy", "torch", "tensorflow", "jax", or a MemoryType; for tables also "pandas", "polars", "duckdb",
                "pyarrow". Type checkers infer one array; for a tree, pass a variable of type str, and they infer Any.
            wait: seconds to wait for a name that does not exist yet; Ctrl-C ends it. Ignored for a Share.
            access: "shared" promises not to write to the result: a framework without read-only arrays (torch) then
                reads the broker's memory without a mapping of its own, and a write ends the process (SIGSEGV).
            copy: True: private writable memory; False, or require="zero-copy": share or raise.
            require: "resident": raises instead of reading a file (NOT_RESIDENT); the options of `copy` stay their defaults.
            device: "cpu", "cuda", "cuda:1", a GPU's ordinal in this process or its UUID; None: the device of the share,
                if the framework has arrays there. JAX computes with an array where the named device is; with another one of
                the host where jax.default_device says.
            mapped: a GPU named by `device` reads a share in host memory where it lies, without a copy, and cannot write it.
                None: if GPU and host have one memory; True: also over PCIe, or raise; False: copy it to the GPU.
            allow_downcast: permits a narrowing that the framework would do silently.
            explain: returns Converted(array, plan).
            types: the dataclasses, namedtuples and enums that a tree may contain, found by their names; others come
                back as `arraybridge.Record` and as plain values. None: those of imported modules. In neither case a
                module is imported or code of a class executed: `__init__` and `__post_init__` do not run.
            newer_than: with a name: only a generation that is newer than this Share's, or than this number; `wait` waits
                for it. If a broker was lost with its daemon, generations count anew: a Share knows that, a number does not.
            info: returns Got(array, share): the usual result, and its Share, for `newer_than` of the next call.
            column: of a table: this column alone, as one array, without a copy if it has no nulls.

        Raises:
            ShareNotFound: no such share. BrokerTimeout: none within `wait`, or its maker's work on a GPU goes on (FENCE_PENDING).
            BrokerUnavailable: no daemon answers. InvalidRequest: the arguments are invalid.
            InvalidMemoryType, FrameworkNotAvailable: this framework is unknown, or not installed.
            UnsupportedDtype: the framework has no such dtype, or would narrow it.
            UnsupportedArray: a rank or layout that the framework does not support.
            DeviceUnavailable, InvalidDevice: no such device here, or none where the framework has arrays.
            ZeroCopyUnavailable: a copy was forbidden and is needed.

        Example:
            >>> share = broker.put(np.arange(3), "counts")
            >>> broker.get("counts", "torch")
            tensor([0, 1, 2])
        """
        if require == "resident":
            require = self._check_resident(name)
        delivery = self._delivery
        plain = copy is None and require is None and device is None and not allow_downcast and access == "safe"
        full = explain or info or newer_than is not None or column is not None or mapped is not None
        bare = plain and types is None and wait is None and not full and type(framework) is str
        short = delivery.short.get(framework) if bare else None
        wanted = None
        if short is None:
            if type(framework) is str and framework in MEMORY_TYPES and framework not in sys.modules:
                self._connection.core()  # an idle broker stays for this session while the framework is imported
            wanted = Wanted.of_share(
                framework, access, copy=copy, require=require, device=device, allow_downcast=allow_downcast, types=types, column=column,
                mapped=mapped,
            )  # fmt: skip
            short = None if full else delivery.short_for(wanted, framework if bare else None)
        # The fast path: the share is found without a call, and is like an array that took the full path.
        if short is not None and type(name) is str and (core := self._connection.known_core) is not None:
            if wait is not None:
                check_seconds(wait, "wait")
            if (held := _core.try_acquire(core, name, short[0], short[1])) is not None:
                result, plan = held
                if plan is None:
                    return delivery.granted(result, wanted or Wanted.of_share(framework))
                delivery.note(plan)
                return result
        wanted = wanted or Wanted.of_share(framework)
        acquired = self._acquired(name, wanted.private, wait, wanted.note, _generation_of(newer_than, name))
        array = delivery.granted(acquired, wanted, explain)
        return Got(array, Share(self, acquired[0])) if info else array

    def get_many(
        self,
        names: Sequence[str | Share],
        framework: str = "numpy",
        *,
        wait: float | None = None,
        access: Access = "safe",
        copy: bool | None = None,
        require: Required | None = None,
        device: object = None,
        allow_downcast: bool = False,
        types: Iterable[type] | None = None,
        mapped: bool | None = None,
    ) -> _Arrays:
        """The results of `get` for each of these, in their order, all or none.

        Shares that this process can find without a call cost no message; the rest costs one message per 256 names (the
        broker's limit). Each is the newest at the time of its lookup.

        Raises:
            ShareNotFound: one of them does not exist. Other errors of `get`.
        """
        if require == "resident":
            require = self._check_resident(names)
        wanted = Wanted.of_share(
            framework, access, copy=copy, require=require, device=device, allow_downcast=allow_downcast, types=types, mapped=mapped,
        )  # fmt: skip
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
        self, array: object, framework: NumpyName, *, explain: Literal[False] = ..., **wishes: Unpack[ConvertWishes]
    ) -> numpy.ndarray[Any, Any]: ...
    @overload
    def convert(
        self, array: object, framework: TorchName, *, explain: Literal[False] = ..., **wishes: Unpack[ConvertWishes]
    ) -> torch.Tensor: ...
    @overload
    def convert(
        self, array: object, framework: TensorflowName, *, explain: Literal[False] = ..., **wishes: Unpack[ConvertWishes]
    ) -> tensorflow.Tensor: ...
    @overload
    def convert(
        self, array: object, framework: JaxName, *, explain: Literal[False] = ..., **wishes: Unpack[ConvertWishes]
    ) -> jax.Array: ...
    @overload
    def convert(
        self, array: object, framework: CupyName, *, explain: Literal[False] = ..., **wishes: Unpack[ConvertWishes]
    ) -> cupy.ndarray: ...
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
        require: Required | None = None,
        allow_downcast: bool = False,
        via: Way | None = None,
        explain: bool = False,
        progress: Progress | None = None,
    ) -> Any:
        """The array, or tree of arrays, as `framework`'s, inside this process: shared if possible, else copied once.

        Accepts a tree as `put` does, and returns the same classes; plain values in it are kept, of any class. A sparse
        array becomes the framework's own. A copy lies in broker memory, so a later `put` of the result copies nothing;
        but torch's own copy of a tensor that requires grad keeps its gradient and lies elsewhere.

        Writable memory is copied on the host for frameworks with constant arrays (JAX, TensorFlow, PyArrow), or shared
        with copy=False, which promises that it is not written any more. A read-only ndarray counts as writable unless
        the owner of its memory is known not to write; its `base` is followed. Read-only memory is copied for PyTorch,
        which would write to it, and refused with copy=False.

        Args:
            device, copy, require, allow_downcast, explain: as in `get`.
            via: the route of the bytes, as in convert_memory: "dlpack", "host" or "serialize"; None: the cheapest. The
                plan's `via` has the result.
            progress: called with (bytes done, total bytes) for each array that is copied into broker memory on the
                host.

        Raises:
            UnsupportedArray, UnsupportedDtype, DeviceUnavailable: the target cannot hold it.
            ZeroCopyUnavailable: `copy=False` or require="zero-copy", and a copy is needed.

        Example:
            >>> tensor, plan = broker.convert(np.arange(3), "torch", explain=True)
            >>> print(plan)
            numpy to torch by hand_over: no copy
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
        """The plan that convert would use for this array, with its reasons. Nothing is moved.

        Raises:
            UnsupportedArray: a capsule, which a plan would consume, because it can be read only once. Other errors of
                `convert`.
        """
        if type(array).__name__ == "PyCapsule":
            raise UnsupportedArray("PyCapsule", str(framework), "detect", _ONLY_ONCE)
        wanted = Wanted.of(framework, copy=copy, device=device, allow_downcast=allow_downcast, via=via)
        return wanted.planned(one_memory.foreseen(source_of(array, wanted.caps.name, wanted.private), wanted))

    def empty(
        self, shape: int | Sequence[int], dtype: Any, framework: str = "numpy", *, device: object = None, pinned: bool = False
    ) -> Any:
        """A writable array in broker memory with undefined content: `put` publishes it without a copy.

        Compact row-major, at an address that is a multiple of 256 bytes.

        Args:
            shape: sizes, in elements; an integer is one dimension.
            dtype: a name, a dtype of any of the frameworks, or any argument of numpy.dtype.
            device: as in `get`; None: the host.
            pinned: True: host memory that is registered with the CUDA driver, for fast and asynchronous copies to and from
                GPUs (torch: `frame.to("cuda", non_blocking=True)`). As with other pinned memory, a copy out of it must
                have ended before it is written again, and a copy into it before the put: synchronise the stream. The
                memory is not used for another array before the work that GPUs have when its last array goes has ended.

        Raises:
            DeviceUnavailable: pinned, and this process sees no CUDA GPU.
            InvalidRequest: not a shape, or pinned memory of a GPU. UnsupportedDtype: not a dtype, or none of this framework.
            OutOfMemory: no room until `timeout_s`.
            UnsupportedArray: arrays of this framework cannot be written (JAX, TensorFlow).

        Example:
            >>> frame = broker.empty((2, 3), "float32")    # write to it before the put
            >>> broker.put(frame, "frame").name
            'frame'
        """
        return self._delivery.empty(shape, dtype, framework, device, pinned)

    def bundle(
        self,
        name: str | None,
        arrays: Mapping[str, Any],
        *,
        kinds: Mapping[str, ArrayKind] | None = None,
        fingerprint: bytes = b"",
        metadata: bytes | None = None,
        replace: bool = False,
        lifetime: float | None = None,
        device: object = None,
    ) -> BundleWriter:
        """Memory for a bundle: one share of many arrays, such as a model's weights, in which each is found by its name.

        Nothing is copied yet: `fill` copies the arrays, or the caller writes them in place (`writer["w"][...] = values`),
        and `publish` publishes all at once. A bundle has one generation, one lease and one mapping, also with 20,000
        arrays; `open` does not decode them. It lies in host memory or on one GPU, and is published there.

        Args:
            name: None lets the broker choose, as in `put`.
            arrays: their names, and arrays as in `put`, or BundleSpecs. Two names of one array stay tied.
            kinds: of the arrays: "parameter", "buffer" or "other" (default).
            fingerprint: tells which model this is; `Bundle.fingerprint` has it.
            metadata: bytes of your own. replace, lifetime: as in `put`.
            device: "cpu", "cuda", "cuda:1", a GPU's ordinal in this process or its UUID; `fill` copies the arrays there
                from wherever they lie. None: the device on which all of them lie; BundleSpecs alone: the host.

        Raises:
            OutOfMemory: no room until `timeout_s`.
            UnsupportedDtype: DLPack lacks the dtype (datetime64, structured dtypes).
            DeviceUnavailable, InvalidDevice: this process sees no such device.
            InvalidRequest: an invalid name, ties that no bundle can have, device=None for arrays on several devices, or
                names and shapes that need more than 64 MiB on a GPU.

        Example:
            >>> broker.bundle("model", {"w": np.ones((2, 3)), "b": np.zeros(3)}).fill().publish().name
            'model'
            >>> broker.open("model").numpy()["b"]
            array([0., 0., 0.])
        """
        terms = BundleTerms.of(kinds, fingerprint, metadata, replace, lifetime, device)
        return BundleWriter(self, self._connection, name, arrays, terms)

    def open(self, name: str | Share, *, wait: float | None = None, newer_than: int | Share | None = None) -> Bundle:
        """A bundle by its name: a Mapping of names to Views, and whole dicts of a framework's arrays (`.torch()`).

        Args:
            wait, newer_than: as in `get`.

        Raises:
            ShareNotFound, BrokerTimeout, BrokerUnavailable: as `get`.
            DeviceUnavailable: it lies on a GPU that this process does not see.
            InvalidRequest: the share is no bundle (`get` reads it), or one of a later version.

        Example:
            >>> share = broker.bundle("net", {"weight": np.ones((2, 3)), "bias": np.zeros(2)}).fill().publish()
            >>> sorted(broker.open("net").torch())    # in any process
            ['bias', 'weight']
        """
        acquired = self._acquired(name, False, wait, "bundle", _generation_of(newer_than, name))
        return opened(self, self._delivery, acquired)

    def watch(self, kinds: Sequence[Kind] | Kind | None = None, names: str = "") -> Watch:
        """Events from now on: an iterator of Events, for `for` and for `async for`.

        Args:
            kinds: of `arraybridge.broker.watch.Kind`: "publish", ["acquire", "refusal"]; None: all.
            names: only events of shares whose names begin with it; excludes events without a share, such as those of
                sessions.

        Raises:
            OutOfMemory: too many watches are open (limits.watchers, of which one user may have a part).
            InvalidRequest: no such kind. BrokerUnavailable: no daemon answers.

        Example:
            >>> events, share = broker.watch("publish"), broker.put(np.ones(3), "seen")    # usually in another process
            >>> events.next(timeout=10).name
            'seen'
        """
        return Watch(self, kinds, names)

    def withdraw(self, name: str | Share) -> None:
        """Withdraws a share from its name. Processes that hold it keep it; its bytes are freed when no process does.

        Raises:
            ShareNotFound: no such share.

        Example:
            >>> share = broker.put(np.ones(3), "old")
            >>> broker.withdraw("old")
        """
        reference = reference_of(name, self.namespace)
        with named_in_errors(name):
            self._connection.ask(lambda core: core.withdraw(*reference))

    def outcome(self, error: BrokerTimeout, timeout_s: float | None = None) -> Outcome:
        """The outcome of a call of this Broker that raised BrokerTimeout: true if it was executed after all.

        The daemon does not begin a request after its deadline, so a call that timed out was not executed, with one
        exception: the daemon began it just before. Its answer arrives later, and this method returns it, also if it is
        called again::

            try:
                share = broker.put(array, "frame")
            except BrokerTimeout as error:
                share = broker.outcome(error).share or broker.put(array, "frame")

        Args:
            error: of a `put`, `withdraw` or `send`. Any other call that timed out (`get`, `flush`, ...) was not
                executed and may be repeated.
            timeout_s: seconds to wait for the daemon's answer; None: as for any call.

        Raises:
            BrokerTimeout: there is still no answer; with the same `request`, so that `outcome` can be called again.
            BrokerUnavailable: OUTCOME_UNKNOWN: the connection ended before the answer arrived, or belongs to another
                process.
            InvalidRequest: not a BrokerTimeout, or not a number of seconds.
        """
        if not isinstance(error, BrokerTimeout):
            raise InvalidRequest(f"outcome takes the BrokerTimeout that a call raised, not {error!r}")
        share, why_not = self._connection.outcome(error, self.timeout_s if timeout_s is None else timeout_s)
        return Outcome(why_not is None, None if share is None else Share(self, share), why_not)

    def list(self, prefix: str = "") -> Sequence[Listed]:
        """The shares of this namespace whose names start with `prefix`.

        Example:
            >>> share = broker.put(np.ones(3), "left eye")
            >>> [each.share.name for each in broker.list("left")]
            ['left eye']
        """
        check_text(prefix, "a prefix")
        return Listing(Listed(Share(self, row.pop("share")), **row) for row in self._connection.ask(lambda core: core.list(prefix)))

    def stats(self) -> dict[str, int]:
        """The broker's numbers (shares, leases, bytes), with the prefix `client_` those of this connection, and with
        `convert_` the number of arrays that this process has converted: in total, by route, with the number and bytes
        of copies. `arraybridge.conversion_counts()` has them by pair and reason, without a broker.
        """
        numbers = dict(self._connection.ask(lambda core: core.stats()))
        own = self._connection.ask(lambda core: core.client_stats())
        client = {f"client_{name}": number for name, number in own.items()}
        return {**numbers, **client, **{f"convert_{name}": number for name, number in counts.totals().items()}}

    def flush(self) -> None:
        """Tells the broker at once what this process no longer reads; otherwise this happens in batches.

        Waits for the GPU work that may still use it, but not for the end of a graph capture (`arraybridge.capturing`).
        """
        self._connection.ask(lambda core: core.flush())

    def views(self, share: Share, *, private: bool = False, access: Access = "safe") -> _Views:
        """The share's arrays as Views, as in `Share.view`: read-only and copied on write by their consumers; with
        `private` copy-on-write in one mapping of their own; with access="shared" the share's own memory.
        """
        check_word(access, "access", ("safe", "shared"))
        if access == "shared":
            if private:
                raise InvalidRequest('private=True and access="shared" contradict each other: pass one of the two')
            return [view.for_immutable_consumer() for view in self._plain_views(share, False)]
        return [exports.protected(view) for view in self._plain_views(share, private)]

    def _plain_views(self, share: Share, private: bool) -> _Views:
        """The Views for an adapter, which knows whether its framework writes."""
        return self._acquired(share, private)[1]

    def _acquired(
        self, name: str | Share, private: bool, wait: float | None = None, note: str = "", newer: tuple[int, bytes] = (0, b"")
    ) -> Acquired:
        newer_than, of_run = newer
        if type(name) is str and name and name.isascii():
            # As `reference_of` would return it.
            return self._connection.acquire(name, 0, 0, private, wait, of_run, note, newer_than)
        text, id, generation, broker_id = reference_of(name, self.namespace)
        with named_in_errors(name):
            # No wait for a Share: the share that it refers to exists, or has ended for good.
            return self._connection.acquire(text, id, generation, private, None if id else wait, broker_id or of_run, note, newer_than)


def remade(address: str | None, namespace: str, start: discovery.Start, timeout_s: float, direct_channels: bool = True) -> Broker:
    """Unpickles a Broker."""
    return Broker(address, namespace=namespace, start=start, timeout_s=timeout_s, direct_channels=direct_channels)


def _generation_of(newer_than: int | Share | None, name: str | Share) -> tuple[int, bytes]:
    """The generation, and the run of the broker that it belongs to (empty: the present one).

    Raises:
        InvalidRequest: it is no generation, or `name` is a Share, which has one generation.
    """
    if newer_than is None:
        return 0, b""
    if isinstance(name, Share):
        raise InvalidRequest("newer_than goes with a name: a Share is one generation; pass share.name")
    if isinstance(newer_than, Share):
        return newer_than.generation, newer_than.broker_id
    if not isinstance(newer_than, int) or isinstance(newer_than, bool) or not 0 <= newer_than < 2**64:
        raise InvalidRequest(f"newer_than must be a generation (share.generation) or a Share, not {newer_than!r}")
    return newer_than, b""


def _loaded(address: str, fields: tuple[Any, ...]) -> Share:
    # Uses no broker, because schedulers unpickle objects that they never read.
    record = record_from(fields)
    broker = references.broker_at(address, record.namespace, lambda: remade(address, record.namespace, "never", 10.0))
    return Share(broker, record, address)


autograph.mark_module(__name__)
