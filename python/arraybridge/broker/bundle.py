# SPDX-License-Identifier: Apache-2.0
"""Bundles: one share of many arrays, such as the weights of a model, each found by its name."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from arraybridge import _core, autograph, exports, planner
from arraybridge.adapters import named, numpy as numpy_adapter
from arraybridge.arguments import Access, check_text, check_word, checked_metadata, sizes_of
from arraybridge.arrays import devices
from arraybridge.broker import notes, one_memory
from arraybridge.broker.connection import Connection
from arraybridge.broker.delivery import Acquired, Delivery, Wanted, gpus_for
from arraybridge.broker.gpu_bytes import GpuBytes
from arraybridge.broker.one_memory.on_device import OnDevice
from arraybridge.broker.placing import device_of, fill, packed_parts, source_of_share
from arraybridge.broker.progress import Progress
from arraybridge.broker.publication import check_name, lifetime_of
from arraybridge.broker.share import Share
from arraybridge.conversion.source import Source
from arraybridge.errors import BrokerError, BrokerTimeout, InvalidRequest, ShareNotFound, UnsupportedArray, UnsupportedDtype, from_status
from arraybridge.notebook.facts import ROWS_MAX, table_of_arrays

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

Kind = Literal["parameter", "buffer", "other"]
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_Wanted = tuple[str, planner.Code, tuple[int, ...], int, str]  # of _core.BundlePlan


class BundleSpec(NamedTuple):
    """An array that a bundle is to have, without its values.

    Attributes:
        shape: sizes, in elements.
        dtype: as in Broker.empty, or "float4_e2m1fn", "float6_e2m3fn" or "float6_e3m2fn", whose elements are packed. Its array
            in a writer, and in frameworks without this dtype, has the bytes: uint8, of which the last dimension has those of a
            row, or all of them in one dimension where a row is no whole number of bytes. torch has float4_e2m1fn_x2.
        kind: a parameter of the model, a buffer of it, or neither.
        tie: the name of another array of the same dtype and shape whose bytes it has.

    Example:
        >>> writer = broker.bundle("room", {"w": arraybridge.BundleSpec((2, 3), "float32")})
        >>> writer["w"][...] = 1
        >>> writer.publish().nbytes > 24    # bytes of the array, and the table of names
        True
    """

    shape: tuple[int, ...]
    dtype: Any
    kind: Kind = "other"
    tie: str | None = None


def _opened(broker: Broker, share: Share, wishes: Mapping[str, Any]) -> Bundle:
    return broker.open(share).on(**wishes)


class Bundle(OnDevice, Mapping[str, _core.View]):
    """A bundle that was opened: a Mapping of names to Views, which are made when they are asked for. Thread-safe.

    It holds one lease; it and every array that was made of it keep the bytes.

    Example:
        >>> share = broker.bundle("small", {"w": np.ones((2, 3)), "b": np.zeros(3)}).fill().publish()
        >>> small = broker.open("small")
        >>> list(small), small["w"].shape, small.numpy()["b"].shape
        (['b', 'w'], (2, 3), (3,))
    """

    def __init__(self, broker: Broker, delivery: Delivery, share: Share, kind: str, core: _core.Bundle) -> None:
        self._broker, self._delivery = broker, delivery
        self._share, self._kind, self._core = share, kind, core
        self._names: list[str] | None = None

    @property
    def share(self) -> Share:
        """Its name, generation and size."""
        return self._share

    @property
    def fingerprint(self) -> bytes:
        """Set by its maker: tells which model this is."""
        return self._core.fingerprint

    @property
    def metadata(self) -> bytes:
        """Its maker's own bytes."""
        return self._core.metadata

    def __len__(self) -> int:
        return len(self._core)

    def __iter__(self) -> Iterator[str]:
        """The names, sorted by their UTF-8.

        Raises:
            InvalidRequest: the manifest is malformed.
        """
        return iter(self._all_names())

    def __contains__(self, name: object) -> bool:
        try:
            return self._found(name) >= 0  # type: ignore[arg-type]
        except KeyError:
            return False

    def __getitem__(self, name: str) -> _core.View:
        """The array as a View, for any framework that reads DLPack or the buffer protocol. Of packed elements few do:
        `as_bytes()` of the View has their bytes.

        Raises:
            KeyError: the bundle has no such array. InvalidRequest: its entry in the manifest is malformed.
        """
        return exports.protected(self._array(self._found(name))[3])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles a reference of this generation, which the other process opens."""
        return _opened, (self._broker, self._share, self._wishes)

    def __repr__(self) -> str:
        return f"<Bundle {self._share.name!r}, generation {self._share.generation}: {len(self)} arrays>"

    def _repr_html_(self) -> str:
        shown = self._core.arrays(0, min(len(self), ROWS_MAX))
        return table_of_arrays(f"Bundle {self._share.name}", [(name, view) for name, _, _, view in shown], len(self) - len(shown))

    def kind(self, name: str) -> Kind:
        """The kind that its maker gave the array.

        Raises:
            KeyError, InvalidRequest: as `bundle[name]`.
        """
        return _KINDS[self._array(self._found(name))[1]]

    def arrays(self, framework: str, prefix: str = "", access: Access = "safe") -> dict[str, Any]:
        """All arrays, or those whose names begin with `prefix`, as arrays of a framework, without a copy.

        As in Broker.get: NumPy, JAX and TensorFlow read the broker's memory; torch gets a copy-on-write mapping of its
        own for each call, so that its writes reach nobody, unless access="shared" promises that there are none. Tied
        arrays are one. Of a bundle on a GPU those of torch, CuPy, JAX and TensorFlow lie there: do not write; NumPy's are copies.

        Raises:
            UnsupportedDtype: the framework lacks a dtype. InvalidRequest: the manifest is malformed.
        """
        Wanted.of(framework, access)  # refuses libraries of tables
        wanted = Wanted.of_share(framework, access, **self._wishes)
        core = self._core
        if wanted.private:
            with _mapped():
                core = core.copy_on_write() or core
        names = self._all_names()
        first, last = 0, len(names)
        if prefix:
            first = next((at for at, name in enumerate(names) if name.startswith(prefix)), last)
            last = next((at for at in range(first, last) if not names[at].startswith(prefix)), last)
        with _mapped():
            found = core.arrays(first, last - first)
        owners = {tie: view for _, _, tie, view in reversed(found)}
        made = self._delivery.each_shown(list(map(_held, owners.values())), self._kind, wanted)
        by_owner = dict(zip(owners, made, strict=True))
        packed = getattr(wanted.target, "packed", None)
        if packed is not None:
            for tie, view in owners.items():
                if view.dtype_name in planner.PACKED:
                    by_owner[tie] = packed(by_owner[tie], view.dtype_name)
        return {name: by_owner[tie] for name, _, tie, _ in found}

    def numpy(self, prefix: str = "") -> dict[str, Any]:
        """`arrays` of NumPy: read-only."""
        return self.arrays("numpy", prefix)

    def torch(self, prefix: str = "", access: Access = "safe") -> dict[str, Any]:
        """`arrays` of torch; no tensor requires grad."""
        return self.arrays("torch", prefix, access)

    def jax(self, prefix: str = "") -> dict[str, Any]:
        """`arrays` of JAX."""
        return self.arrays("jax", prefix)

    def tensorflow(self, prefix: str = "") -> dict[str, Any]:
        """`arrays` of TensorFlow."""
        return self.arrays("tensorflow", prefix)

    def state_dict(self, prefix: str = "", access: Access = "safe") -> dict[str, Any]:
        """`torch`, with the prefix removed from the names: for `module.load_state_dict(..., assign=True)`.

        Example:
            >>> import torch
            >>> share = broker.bundle("linear", torch.nn.Linear(3, 2).state_dict()).fill().publish()
            >>> with torch.device("meta"):
            ...     model = torch.nn.Linear(3, 2)
            >>> model.load_state_dict(broker.open("linear").state_dict(), assign=True)
            <All keys matched successfully>
        """
        return {name.removeprefix(prefix): tensor for name, tensor in self.torch(prefix, access).items()}

    def wait_newer(self, timeout: float | None = None) -> Bundle:
        """The next generation of this name, when there is one.

        Args:
            timeout: seconds, 0 for a look; None: as long as Ctrl-C does not end it.

        Raises:
            BrokerTimeout: there is none in time. BrokerUnavailable: no daemon answers.
        """
        wait = math.inf if timeout is None else timeout
        try:
            return self._broker.open(self._share.name, wait=wait, newer_than=self._share).on(**self._wishes)
        except ShareNotFound as error:  # without a wait
            raise BrokerTimeout(error.message) from error

    def _all_names(self) -> list[str]:
        if self._names is None:
            with _mapped():
                self._names = self._core.names()
        return self._names

    def _found(self, name: str) -> int:
        if not isinstance(name, str):
            raise KeyError(name)
        try:
            check_text(name, "a name")
            return self._core.find(name)
        except InvalidRequest:  # no array can have such a name
            raise KeyError(name) from None
        except _core.StatusError as status:
            if status.reason == "ARRAY_NOT_FOUND":
                raise KeyError(name) from None
            raise from_status(status) from None

    def _array(self, index: int) -> tuple[str, int, int, _core.View]:
        with _mapped():
            return self._core.array(index)


class BundleWriter:
    """A bundle that is being written: its memory is allocated, and nobody else sees it until `publish`.

    If its process dies, or it is dropped, its memory is free again. Not thread-safe, but threads may write different
    arrays.

    Example:
        >>> writer = broker.bundle("layer", {"w": np.ones((2, 3))})
        >>> writer.fill().publish().name
        'layer'
    """

    def __init__(self, broker: Broker, connection: Connection, name: str | None, wanted: Mapping[str, Any], terms: BundleTerms) -> None:
        if name is not None:
            check_name(name)
        self._broker, self._connection, self._name = broker, connection, name or ""
        self._sources: dict[str, Source] = {}
        self._tied: dict[str, str] = {}  # names and those of the arrays whose bytes they have
        specs = self._specs(wanted, terms.kinds or {})
        self._shapes = {each[0]: (each[1], each[2]) for each in specs}
        with _mapped():
            plan = _core.BundlePlan(specs, terms.fingerprint, terms.metadata)
        note = notes.cut("bundle place")
        self._options = _core.PutOptions(terms.replace, False, _core.BUNDLE_STRUCTURE, b"", terms.lifetime_s, note, note, "", True)
        where = self._device = self._chosen(terms.device)
        self._lent: dict[str, Any] = {}  # on a GPU: of each framework, an array that the caller may have written
        placement = connection.ask(lambda core: core.empty(plan.specs(), self._name, self._options, where))
        self._placement: _core.Placement | None = placement
        with _mapped():
            self._core = plan.write_to(placement)

    def __len__(self) -> int:
        return len(self._core)

    def __getitem__(self, name: str) -> Any:
        """The array to write, of NumPy.

        Raises:
            KeyError: the bundle has no such array. InvalidRequest: the bundle is published.
        """
        return self.array(name)

    def array(self, name: str, framework: str = "numpy") -> Any:
        """The array to write, of a framework whose arrays can be written.

        On a GPU, `fill` and `publish` wait for the work that its framework has queued by then on its current stream.

        Raises:
            KeyError, InvalidRequest: as `writer[name]`. UnsupportedArray: arrays of this framework cannot be written, or
                cannot lie where the bundle lies.
        """
        self._check_open()
        target = named(framework)
        caps = target.caps()
        on_gpu = self._device != devices.HOST
        others = "torch or cupy: writer.array(name, 'torch')" if on_gpu else "numpy"
        if caps.read_only == "immutable":
            raise UnsupportedArray("bundle", framework, "place", f"arrays of {framework} cannot be written: use {others}")
        if self._device[0] not in caps.devices:
            reason = f"the bundle lies on {devices.named(self._device)}, where {framework} has no arrays: use fill, or {others}"
            raise UnsupportedArray("bundle", framework, "place", reason)
        made = target.view(_held(self._view_of(name)))
        if on_gpu:
            self._lent[framework] = made
        return made

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays; those that are tied to one another count once."""
        return sum(
            (math.prod(shape) * code[1] * code[2] + 7) // 8 for name, (code, shape) in self._shapes.items() if name not in self._tied
        )

    def bytes_of(self, names: Iterable[str]) -> dict[str, memoryview | GpuBytes]:
        """The bytes of each array, to be written: compact row-major, of this machine's byte order. Thread-safe.

        Raises:
            KeyError, InvalidRequest: as `writer[name]`.
        """
        self._check_open()
        if self._device != devices.HOST:
            return {name: GpuBytes(self._view_of(name)) for name in names}
        return {name: memoryview(numpy_adapter.bits_of(_held(self._view_of(name))).reshape(-1).view("u1")) for name in names}

    def fill(self, arrays: Mapping[str, Any] | None = None, progress: Progress | None = None) -> BundleWriter:
        """Copies values into the arrays of these names, which may be some of the bundle's. The values may lie on the
        host or on any GPU.

        Args:
            arrays: None: those that the writer was made of.
            progress: called with (bytes done, total bytes) before, during and after the copy.

        Raises:
            KeyError: the bundle has no such array. InvalidRequest: the dtype or the shape differs, or the bundle is
                published.
        """
        self._check_open()
        sources = self._sources
        if arrays is not None:
            sources = {}
            for name, array in arrays.items():
                with _at(name):
                    parts = packed_parts(array)
                    sources[name] = source_of_share(array if parts is None else parts[0])
        destinations: dict[str, _core.View] = {}
        written: dict[str, str] = {}  # the arrays that have bytes of their own, and the names of their values
        for name, source in sources.items():
            found = source.description
            if name not in self._shapes:
                raise KeyError(name)
            destination = _held(self._view_of(name))
            if (found.code, found.shape) != (destination.dtype_code, destination.shape):
                raise InvalidRequest(f"array {name!r} is {found.dtype}{list(found.shape)}, which differs from the bundle's")
            values = written.setdefault(self._tied.get(name, name), name)
            if values == name:
                destinations[name] = destination
            elif (
                source.array is not sources[values].array
                and found.nbytes
                and (_identity(source) is None or _identity(source) != _identity(sources[values]))
            ):
                raise InvalidRequest(f"{name!r} is tied to {values!r}, and has other values: pass one of the two")
        self._wait()
        fill(list(destinations.values()), [sources[name] for name in destinations], progress)
        return self

    def publish(self) -> Share:
        """Publishes all arrays at once, and returns the share. They must not be written any more.

        Raises:
            ShareExists: the name is taken, and `replace` is False. Other errors of Broker.put.
        """
        self._check_open()
        placement = self._placement
        assert placement is not None
        self._wait()
        info = self._connection.ask(lambda core: core.publish(placement, self._name, self._options))
        assert info is not None
        self._placement = None
        self._sources, self._lent = {}, {}
        return Share(self._broker, info)

    def _wait(self) -> None:
        """Returns after the work that frameworks have queued on arrays of the bundle."""
        for framework, array in list(self._lent.items()):  # other threads may ask for theirs
            named(framework).export(array).complete()

    def _chosen(self, device: object) -> devices.Device:
        """The device that the bundle is to lie on.

        Raises:
            InvalidDevice, DeviceUnavailable: there is none of this name. InvalidRequest: None, and the arrays lie on several.
        """
        wished = devices.wished(device, gpus_for(device), "bundle", "share")
        if wished is not None or not self._sources:
            return wished or devices.HOST
        try:
            return device_of(one_memory.together(list(self._sources.values())))
        except InvalidRequest as error:
            raise InvalidRequest(f"{error.message}; device= says where the bundle is to lie") from None

    def _check_open(self) -> None:
        if self._placement is None:
            raise InvalidRequest(f"bundle {self._name!r} is published: make a new one for its next generation")

    def _view_of(self, name: str) -> _core.View:
        if name not in self._shapes:
            raise KeyError(name)
        return self._core.array(self._core.find(name))[3]

    def _specs(self, wanted: Mapping[str, Any], kinds: Mapping[str, Kind]) -> list[_Wanted]:
        specs: list[_Wanted] = []
        first: dict[Hashable, str] = {}
        for name, array in wanted.items():
            check_text(name, "the name of an array in a bundle")
            with _at(name):
                specs.append(self._spec(name, array, kinds.get(name, "other"), first))
        return specs

    def _spec(self, name: str, array: Any, kind: Kind, first: dict[Hashable, str]) -> _Wanted:
        if isinstance(array, BundleSpec):
            check_word(array.kind, "kind", _KINDS)
            dtype = planner.dtype_name(array.dtype)
            if dtype not in planner.PACKED:
                dtype, _, _ = numpy_adapter.traveling(array.dtype)
            if array.tie and array.tie != name:
                self._tied[name] = array.tie
            return name, _code(dtype), sizes_of(array.shape), _KINDS.index(array.kind), array.tie or ""
        check_word(kind, "kind", _KINDS)
        parts = packed_parts(array)
        source = source_of_share(array if parts is None else parts[0])
        found = source.description
        dtype, shape = (found.dtype, found.shape) if parts is None else parts[1:]
        code = _code(dtype)
        self._sources[name] = source
        # A tie has a name: an array without one is tied to others, not they to it.
        identity = _identity(source)
        of_bytes = name if identity is None else (dtype, identity)
        tie = first.setdefault(of_bytes, name) if name else first.get(of_bytes, name)
        if tie != name:
            self._tied[name] = tie
        return name, code, shape, _KINDS.index(kind), "" if tie == name else tie


def _held(view: _core.View) -> _core.View:
    """The memory as frameworks have it: bytes, if elements are packed."""
    return view.as_bytes() if view.dtype_name in planner.PACKED else view


def _identity(source: Source) -> Hashable:
    """Equal for two arrays that are the same bytes in the same layout; None: it is unknown, because its framework turns
    the bytes into values (byte order, conjugation), or because there are none.
    """
    found = source.description
    plain = not found.obstacles and found.fill is None and found.pull is None and found.strides is not None
    return (found.address, found.code, found.dtype, found.shape, found.strides) if plain and found.nbytes else None


class BundleTerms(NamedTuple):
    """The options of Broker.bundle."""

    kinds: Mapping[str, Kind] | None
    fingerprint: bytes
    metadata: bytes
    replace: bool
    lifetime_s: float
    device: object

    @classmethod
    def of(
        cls,
        kinds: Mapping[str, Kind] | None,
        fingerprint: bytes,
        metadata: bytes | None,
        replace: bool,
        lifetime: float | None,
        device: object,
    ) -> BundleTerms:
        """Raises:
        InvalidRequest: one of them is invalid.
        """
        if not isinstance(replace, bool):
            raise InvalidRequest(f"replace must be True or False, not {replace!r}")
        if not isinstance(fingerprint, bytes):
            raise InvalidRequest(f"a fingerprint must be bytes, not {type(fingerprint).__name__}")
        return cls(kinds, fingerprint, checked_metadata(metadata), replace, lifetime_of(lifetime), device)


def opened(broker: Broker, delivery: Delivery, acquired: Acquired) -> Bundle:
    """The Bundle of an acquired share.

    Raises:
        InvalidRequest: the share is no bundle, or one of a later version.
    """
    info, views = acquired
    with _mapped():
        return Bundle(broker, delivery, Share(broker, info), info.kind, _core.Bundle(views))


def _code(dtype: str) -> planner.Code:
    code = planner.CODES.get(dtype) or planner.PACKED.get(dtype)
    if code is None:
        fields = dtype.startswith(numpy_adapter.STRUCT)
        way_out = "use an array for each field, as array[field]" if fields else 'use "int64", as array.view("int64") has it'
        reason = f"a bundle has DLPack's dtypes only, not {'structured ones' if fields else dtype}: {way_out}"
        raise UnsupportedDtype("bundle", "any", "place", reason)
    return code


@contextlib.contextmanager
def _at(name: str) -> Iterator[None]:
    """Errors begin with the array's name, as those of a tree with the path."""
    try:
        yield
    except BrokerError as error:
        error.at(f"[{name!r}]")
        raise


class _mapped:
    """Raises the package's errors in place of the extension's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, _core.StatusError):
            raise from_status(error) from None


autograph.mark_module(__name__)
