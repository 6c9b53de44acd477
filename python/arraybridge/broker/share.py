# SPDX-License-Identifier: Apache-2.0
"""A Share is a published array, or tree of arrays. A value: it holds no memory and no lease.

It is pickled as a reference, without secrets and without its bytes, so it can be sent to any process of the host;
reading it there acquires it on that process's own connection.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from arraybridge import autograph
from arraybridge.adapters import numpy as numpy_adapter
from arraybridge.arguments import Access, check_text
from arraybridge.array_api import dtype_of, namespace_of, to_device
from arraybridge.arrays.devices import HOST, named
from arraybridge.broker.patterns.metadata import decoded
from arraybridge.broker.tiers.tiered import Tiered
from arraybridge.errors import BrokerError, InvalidRequest, ShareNotFound, UnsupportedArray, printable
from arraybridge.notebook.facts import table_of
from arraybridge.planner import OPAQUE_PREFIXES, opaque_refused
from arraybridge.tables import results

if TYPE_CHECKING:
    from arraybridge._core import ShareInfo, View
    from arraybridge.broker.broker import Broker


_SHOWN_MAX: Final = 16  # arrays in a notebook


class ArraySpec(NamedTuple):
    """Describes one array of a share: what `Share.specs` has.

    Attributes:
        dtype: the logical name: "float32"; of NumPy's own dtypes "datetime64[ns]", or "struct:" and a description.
        shape: sizes, in elements.
        strides: in elements, not bytes.
        offset: of the first element, in bytes from the share's start.

    Example:
        >>> broker.put(np.ones((2, 3), "float32")).specs
        [ArraySpec(dtype='float32', shape=(2, 3), strides=(3, 1), offset=0)]
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class Record(NamedTuple):
    """The broker's description of a share: ShareInfo as a plain value."""

    id: int
    broker_id: bytes
    namespace: str
    name: str
    generation: int
    arrays: list[tuple[str, tuple[int, int, int], tuple[int, ...], tuple[int, ...], int]]
    size: int
    device: tuple[int, int]
    kind: str
    enforced: bool
    structure: bytes
    metadata: bytes
    unnamed: bool


def record_of(share: Share) -> Record:
    """The broker's description of a share, as a plain value."""
    return Record._make(getattr(share._record, name) for name in Record._fields)


def record_from(fields: tuple[Any, ...]) -> Record:
    """The Record of a pickle.

    Raises:
        InvalidRequest: another version of this package pickled it.
    """
    if len(fields) != len(Record._fields):
        what = f"a Share with {len(fields)} facts was pickled by another version of arraybridge, this one has {len(Record._fields)}"
        raise InvalidRequest(f"{what}: install the same version in both processes")
    return Record(*fields)


class Share(Tiered):
    """A published, immutable, named array or tree of arrays, of one generation of its name.

    Consumers of DLPack, such as `torch.from_dlpack(share)`, get a copy-on-write mapping of its one array.

    Example:
        >>> share = broker.put(np.arange(3), "counts")
        >>> share.to("torch")
        tensor([0, 1, 2])
    """

    __slots__ = ("__weakref__", "_address", "_broker", "_record")

    def __init__(self, broker: Broker, record: ShareInfo | Record, address: str | None = None) -> None:
        self._broker = broker
        self._record = record
        # The address of the broker that holds the share: the Broker may be closed when this is pickled, and connect
        # elsewhere later.
        self._address = broker.latest_address if address is None else address

    @property
    def name(self) -> str:
        """The name under which it was put, or that the broker chose."""
        return self._record.name

    @property
    def namespace(self) -> str:
        """The namespace that owns the name."""
        return self._record.namespace

    @property
    def id(self) -> int:
        """Unique within one run of the broker."""
        return self._record.id

    @property
    def generation(self) -> int:
        """The number of this share: greater than those of all earlier shares of its name."""
        return self._record.generation

    @property
    def broker_id(self) -> bytes:
        """Identifies the broker and its run."""
        return self._record.broker_id

    @property
    def specs(self) -> list[ArraySpec]:
        """Dtype, shape, strides (in elements) and offset (in bytes) of each of its arrays."""
        return [ArraySpec(name, shape, strides, offset) for name, _, shape, strides, offset in self._record.arrays]

    @property
    def nbytes(self) -> int:
        """Bytes that the share spans in the broker's memory."""
        return self._record.size

    @property
    def device(self) -> tuple[int, int]:
        """DLPack's (type, id), with the ordinal of the process that received the description."""
        return self._record.device

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its one array. AttributeError: it is a tree of arrays."""
        spec = self._only_spec()
        return spec.shape[:-1] if spec.dtype.startswith(numpy_adapter.STRUCT) else spec.shape

    @property
    def size(self) -> int:
        """Elements of its one array. AttributeError: it is a tree of arrays."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> Any:
        """NumPy's dtype of its one array; the logical name where NumPy has none. AttributeError: it is a tree of arrays."""
        spec = self._only_spec()
        if not spec.dtype.startswith(OPAQUE_PREFIXES):
            return dtype_of(spec.dtype)
        return numpy_adapter.opaque_dtype(spec.dtype, self._record.arrays[0][1], spec.shape)

    @property
    def kind(self) -> str:
        """How a process opens its memory: "memfd", "cuda_vmm", "cuda_ipc"."""
        return self._record.kind

    @property
    def metadata(self) -> Any:
        """The user's own bytes. A tree of plain values, if it was put with one."""
        return decoded(self._record.metadata)

    @property
    def sealed(self) -> bool:
        """True if the kernel refuses every write, also of its maker. Otherwise only the living maker could write."""
        return self._record.enforced

    @property
    def unnamed(self) -> bool:
        """The broker chose the name; the share ends when its maker has ended and no process reads it."""
        return self._record.unnamed

    def to(self, framework: str, **wishes: Any) -> Any:
        """broker.get(share, framework, **wishes)."""
        return self._broker.get(self, framework, **wishes)

    def withdraw(self) -> None:
        """Withdraws this generation from its name. Processes that hold it keep it."""
        self._broker.withdraw(self)

    def view(self, *, private: bool = False, access: Access = "safe") -> View:
        """The share's one array as a read-only View. A DLPack consumer gets a copy-on-write mapping of its own, by the
        old protocol and the new one: its writes reach neither the share nor another consumer. A GPU has no
        copy-on-write: a consumer reads the share's memory itself, and must not write to it.

        Args:
            private: the View itself is of a copy-on-write mapping, and can be written; all its consumers share the
                mapping.
            access: "shared" promises not to write: consumers get the share's own mapping, in 80 ns instead of about a
                microsecond, and a write ends the process (SIGSEGV).

        Raises:
            UnsupportedArray: it is a tree of arrays. InvalidRequest: `private` with access="shared", or an invalid
                access.
            ShareNotFound: the share has ended.
        """
        self._only()
        return self._broker.views(self, private=private, access=access)[0]

    def _plain_view(self, private: bool) -> View:
        """The View for an adapter, which knows whether its framework writes."""
        self._only()
        return self._broker._plain_views(self, private)[0]

    def __dlpack__(self, **wishes: Any) -> Any:
        # A mapping of its own for every consumer: some ignore the read-only flag, and none may see another's writes.
        self._refuse_opaque()
        return self.view(private=True).__dlpack__(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        # Each process has its own GPU ordinals.
        return self._record.device if self._record.device == HOST else self.view().device

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Its one array, or its table, for libraries of Arrow (pyarrow, polars), as `View.__arrow_c_array__`."""
        source = self.to("table") if self._record.structure else self.view()
        return results.table_of(source).__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The same as a stream of one chunk."""
        source = self.to("table") if self._record.structure else self.view()
        return results.table_of(source).__arrow_c_stream__(requested_schema)

    def __arrow_c_device_array__(self, requested_schema: Any = None, **wishes: Any) -> tuple[Any, Any]:
        """The same, also of memory on a GPU."""
        return self.view().__arrow_c_device_array__(requested_schema, **wishes)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """NumPy's functions, which accept a Share in host memory. TypeError: it is on a GPU, or not an array."""
        self._only()
        return namespace_of(self, api_version)

    def to_device(self, device: object, /, *, stream: object = None) -> Share | View:
        """The array on the device, as the array API standard has it: this Share, if it lies there, or a View of a copy in
        host memory.

        Raises:
            UnsupportedArray: another device, or a tree of arrays. ShareNotFound: the share has ended.
        """
        self._only()
        moved: Share | View = to_device(self, device, stream)
        return moved

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self._only()
        array = self._broker.get(self, "numpy", copy=True if copy else None)
        if dtype is None or array.dtype == dtype:
            return array
        if copy is False:
            raise ValueError("another dtype needs a copy")
        return array.astype(dtype)

    def __buffer__(self, flags: int, /) -> memoryview:
        self._refuse_opaque()
        return self.view().__buffer__(flags)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._broker._reduced(self._address, record_of(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Share) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        where = f"on {named(self.device)}, {self._own_bytes()} bytes"
        return f"<Share {self.name!r} generation {self.generation}: {self.arrays_text(3)} {where}>"

    def __rich_repr__(self) -> Any:
        yield self.name
        yield "generation", self.generation
        yield "arrays", [(_short(spec.dtype), spec.shape) for spec in self.specs]
        yield "device", named(self.device)
        yield "nbytes", self.nbytes

    def _repr_html_(self) -> str:
        broker = "a broker" if self._address is None else f"the broker at {self._address}"
        return table_of(f"Share {self.name}", [
            ("generation", self.generation),
            ("arrays", self.arrays_text(_SHOWN_MAX)),
            ("device", named(self.device)),
            ("bytes", f"{self._own_bytes()}, in the broker's memory {self.nbytes}"),
            ("namespace", self.namespace),
            ("held by", broker),
        ])  # fmt: skip

    def _own_bytes(self) -> int:
        """The bytes of the arrays alone. The broker's memory is used in multiples of 256."""
        return sum(math.prod(shape) * bits * lanes // 8 for _, (_, bits, lanes), shape, *_ in self._record.arrays)

    def arrays_text(self, most: int) -> str:
        """The dtypes and shapes of the first arrays, for people: "float32 (2, 3), int8 (5,) and 7 more".

        Example:
            >>> broker.put([np.zeros(2), np.zeros(3)]).arrays_text(1)
            'float64 (2,) and 1 more'
        """
        shown = ", ".join(f"{printable(_short(spec.dtype))} {spec.shape}" for spec in self.specs[:most])
        more = len(self._record.arrays) - most
        return f"{shown} and {more} more" if more > 0 else shown

    def _only(self) -> None:
        if len(self._record.arrays) != 1 or self._record.structure:
            reason = f"a share of {len(self._record.arrays)} arrays in a tree is not an array: use share.to(framework)"
            raise UnsupportedArray("share", "any", "hand_over", reason)

    def _only_spec(self) -> ArraySpec:
        if len(self._record.arrays) != 1 or self._record.structure:
            raise AttributeError("a share of arrays in a tree has no shape and dtype of its own: use share.specs")
        return self.specs[0]

    def _refuse_opaque(self) -> None:
        self._only()
        if self.specs[0].dtype.startswith(OPAQUE_PREFIXES):
            raise opaque_refused("share", self.specs[0].dtype, "use numpy.asarray(share)")

    def _key(self) -> tuple[bytes, str, int]:
        return self._record.broker_id, self._record.namespace, self._record.id


class Got(NamedTuple):
    """A result of `Broker.get`, and its Share (`info=True`).

    Attributes:
        array: the array, or tree of arrays, as `get` returns it without `info`.
        share: the share that it was read from.

    Example:
        >>> share = broker.put(np.ones((2, 3)), "got")
        >>> broker.get("got", info=True).share == share
        True
    """

    array: Any
    share: Share


class Outcome(NamedTuple):
    """The outcome of a call that timed out: what `Broker.outcome` returns. True if it was executed after all.

    Attributes:
        done: True if it was executed.
        share: of a put that was executed; else None.
        error: why it was not executed; None if it was.

    Example:
        >>> try:
        ...     share = broker.put(np.ones(3), "slow")
        ... except arraybridge.BrokerTimeout as error:
        ...     if not broker.outcome(error):
        ...         share = broker.put(np.ones(3), "slow")
    """

    done: bool
    share: Share | None = None  # of a put that was executed
    error: BrokerError | None = None  # why it was not executed

    def __bool__(self) -> bool:
        return self.done


def reference_of(name: str | Share, namespace: str) -> tuple[str, int, int, bytes]:
    """The arguments of an acquire: (name, 0, 0, b""), or for a Share ("", id, generation, broker_id).

    Raises:
        InvalidRequest: neither a name nor a Share, or one of another namespace.
    """
    if isinstance(name, str) and name:
        check_text(name, "a name")
        return name, 0, 0, b""
    if not isinstance(name, Share):
        raise InvalidRequest(f"a share must be named by a non-empty str or a Share, not by {name!r}")
    if name.namespace != namespace:
        what = f"the share {name.name!r} is of namespace {name.namespace!r}, this Broker of {namespace!r}"
        raise InvalidRequest(f"{what}: use share.to(framework), or Broker(namespace={name.namespace!r})")
    return "", name.id, name.generation, name.broker_id


@contextlib.contextmanager
def named_in_errors(share: str | Share) -> Iterator[None]:
    """Adds the name of a Share to the broker's error, which has its id alone."""
    try:
        yield
    except ShareNotFound as error:
        if isinstance(share, Share):
            error.at(f"share {share.name!r}")
        raise


def _short(dtype: str) -> str:
    return "structured" if dtype.startswith("struct:") else dtype


autograph.mark_module(__name__)
