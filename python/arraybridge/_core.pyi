# SPDX-License-Identifier: Apache-2.0
"""The extension: bytes and arrays, no policy, no framework. Functions release the GIL while they wait or copy; Channel.send
keeps it for up to 64 KiB that it can send without waiting.

Errors of the broker are raised as StatusError(code, message, reason, request); arraybridge.errors maps them to classes.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, Final, Self, final

from typing_extensions import disjoint_base

from arraybridge.planner import Plan

__version__: Final[str]
dlpack_version: Final[tuple[int, int]]

class StatusError(Exception):
    code: int
    message: str
    reason: str
    facts: dict[str, str]  # names and values of the error, as the broker states them
    request: str  # the argument of `Core.outcome`; "": the call was not executed

@final
class View:
    """An array in memory: exports DLPack in both dialects, buffer, array interfaces. Immutable, weak-referenceable."""

    shape: Final[tuple[int, ...]]
    strides: Final[tuple[int, ...]]  # elements
    dtype: Final[Any]  # numpy.dtype; the logical name if NumPy and ml_dtypes lack it or are not installed
    dtype_name: Final[str]  # "" if it has none
    dtype_code: Final[tuple[int, int, int]]  # DLPack code, bits, lanes
    ndim: Final[int]
    size: Final[int]
    nbytes: Final[int]
    address: Final[int]  # 0 if the array has no elements
    device: Final[tuple[int, int]]
    read_only: Final[bool]
    compact: Final[bool]
    constant: Final[bool]  # True: no process writes these bytes any more
    traits: Final[int | None]  # the key of a plan for compact host memory; None for other memory
    # AttributeError for a dtype that the protocol lacks, and for memory on the other kind of device.
    __array_interface__: dict[str, Any]
    __cuda_array_interface__: dict[str, Any]
    __dlpack_c_exchange_api__: Final[Any]  # on the type: a capsule "dlpack_exchange_api"
    __c_dlpack_exchange_api__: Final[int]  # the same table for DLPack 1.2
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...
    def _repr_html_(self) -> str: ...
    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Capsules of Arrow's schema and array, over the same memory: host memory, one dimension, int8 to int64, uint8 to
        uint64, float16 to float64. BufferError: any other array.
        """
    def __arrow_c_device_array__(self, requested_schema: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        """The same, also of memory on a GPU, after the work of its producer has ended."""
    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """NumPy's functions, which accept Views of host memory. TypeError: memory of a GPU."""
    def complete(self) -> View:
        """The same memory, after the work of its producer on a GPU, possibly in another process, has ended. Waits.

        Raises:
            BufferError: the GPU or its driver failed, or the producer's process died before.
        """
    def for_immutable_consumer(self) -> View:
        """The same memory for a consumer that does not write (JAX, TensorFlow): an unversioned capsule of it may alias
        read-only bytes. If the address is not a multiple of 64, this is a copy, reported by a CopyWarning.
        """
    def immutable_capsule(self) -> Any:
        """for_immutable_consumer().__dlpack__() without the intermediate View; does not order a stream on a GPU."""
    def plain(self) -> View:
        """The same memory for a known consumer: DLPack exports it as it is."""
    def protected(self, constant: bool = False, origin: View | None = None) -> View:
        """The same memory for unknown consumers: no write through DLPack reaches read-only bytes. Memory of a share is
        exported as a copy-on-write mapping, other memory as a copy.

        Args:
            constant: no process writes these bytes any more.
            origin: the View of a share whose memory may contain these bytes.
        """
    def copy_on_write(self) -> View | None:
        """The bytes of a share in host memory, in a writable copy-on-write mapping of their own; None for other memory."""
    def named(self, dtype: str, code: tuple[int, int, int] | None = None) -> View:
        """The same memory with another logical dtype name and a code of the same width."""
    def as_bytes(self) -> View:
        """The same memory as uint8: the last dimension has the bytes of a row; one dimension where rows are no whole bytes.

        Raises:
            ValueError: it is not compact.
        """
    def to_device(self, device: Any, /, *, stream: Any = None) -> View:
        """The array on the device, as the array API standard has it: itself, or a copy in host memory.

        Raises:
            ValueError: another device.
        """

@final
class Placement:
    """Bytes in an arena of this session, not yet published; or bytes of a share, to be published once more."""

    forwards: Final[bool]
    views: Final[list[View]]

BUNDLE_STRUCTURE: Final[bytes]

@final
class BundlePlan:
    """The memory that a bundle needs, and its manifest. StatusError: an array that no bundle can have."""

    def __init__(
        self,
        arrays: Sequence[tuple[str, tuple[int, int, int], tuple[int, ...], int, str]],
        fingerprint: bytes,
        metadata: bytes,
    ) -> None:
        """arrays: name, dtype code, shape, kind, the name of the array that it is tied to or ""."""
    def specs(self) -> list[tuple[str, tuple[int, int, int], tuple[int, ...]]]: ...
    def write_to(self, placement: Placement) -> Bundle: ...

@final
class Bundle:
    """The arrays of a bundle, sorted by name. StatusError: no bundle; a malformed entry, at its reading."""

    fingerprint: Final[bytes]
    metadata_bytes: Final[int]
    metadata: Final[bytes]
    def __init__(self, views: Sequence[View]) -> None: ...
    def __len__(self) -> int: ...
    def find(self, name: str) -> int: ...
    def names(self) -> list[str]: ...
    def array(self, index: int) -> tuple[str, int, int, View]: ...  # name, kind, index of the array whose bytes it has, View
    def arrays(self, first: int, count: int) -> list[tuple[str, int, int, View]]: ...
    def copy_on_write(self) -> Bundle | None:
        """The same bytes in a copy-on-write mapping of this process; None: it is writable already, or empty."""

@final
class DescribedTable:
    """A table of a share. StatusError: its description violates the grammar, or does not fit its arrays."""

    kind: Final[str]
    first: Final[int]  # of the share's arrays
    count: Final[int]
    nbytes: Final[int]
    def __init__(self, text: bytes, views: list[View]) -> None:
        """text: [kind, node, first, count] in JSON, or {"table": the same}. views: all arrays of the share."""
    def __len__(self) -> int: ...
    def check(self) -> None: ...  # sizes and offsets, again
    def column(self, index: int) -> DescribedTable: ...
    def described(self) -> tuple[Any, ...]: ...  # the fields of a Node of `tables.nodes`, nested
    def arrow_schema(self) -> Any: ...  # capsules
    def arrow_array(self) -> tuple[Any, Any]: ...
    def arrow_stream(self) -> Any: ...

@final
class SwapWindow:
    """Addresses at which one generation of a bundle after the other is read. StatusError: as in swap_window.h."""
    def __init__(self, first: Bundle) -> None: ...
    def over(self, bundle: Bundle) -> Bundle: ...
    def contains(self, address: int) -> bool: ...
    def check_layout(self, live: Bundle, next: Bundle) -> None: ...
    def prepare(self, next: Bundle) -> bool: ...  # True: mapped; False: copied
    def swap(self) -> None: ...
    def clean(self) -> None: ...

@final
class PutOptions:
    """The options of a put, beside the name and the arrays."""

    def __init__(
        self,
        replace: bool = False,
        sealed: bool = False,
        structure: bytes = b"",
        metadata: bytes = b"",
        lifetime_s: float = 0.0,
        note: str = "",
        note_in_place: str = "",
        note_forward: str = "",
        wait: bool = True,
        timeout_s: float | None = None,
        keep_writing: bool = False,
    ) -> None:
        """note: how the arrays came into broker memory, for tools that trace the share, at most 64 bytes of UTF-8; so
        everywhere. note_in_place: the same of arrays that were born there. note_forward: of arrays of a share. wait: False: nothing is told of the share, and
        the broker is not waited for where it can take the share from a queue. A failure is raised by the next such put,
        which then does nothing else, by `Core.confirm` or by `Core.flush`. timeout_s: of `Core.place` and `Core.empty`, if it is less than the Broker's.
        keep_writing: of `Core.put`: the caller writes the arrays afterwards.
        """

@final
class ShareInfo:
    id: Final[int]
    broker_id: Final[bytes]
    namespace: Final[str]
    name: Final[str]
    generation: Final[int]
    arrays: Final[list[tuple[str, tuple[int, int, int], tuple[int, ...], tuple[int, ...], int]]]
    # ^ dtype name, code, shape, strides in elements, offset in bytes
    size: Final[int]
    device: Final[tuple[int, int]]
    kind: Final[str]  # memfd, cuda_vmm, cuda_ipc: how this process opens its memory
    enforced: Final[bool]
    structure: Final[bytes]
    metadata: Final[bytes]
    unnamed: Final[bool]
    # Of what was received from a channel: sequence, stream, nanoseconds of CLOCK_BOOTTIME, the sender's process and name.
    sent: Final[tuple[int, int, int, int, str] | None]

@final
class ChannelEnd:
    """One end of a channel, open until `close`; destroying it without `close` abandons it."""

    capacity: Final[int]
    def send(
        self,
        placement: Placement,
        structure: bytes = b"",
        metadata: bytes = b"",
        timeout_s: float | None = None,
        waits: bool = False,
        seen: int | None = None,
    ) -> None:
        """timeout_s: None: no limit. waits: goes on when the last receiver is lost. seen: as of `check`."""
    def put(
        self,
        core: Core,
        views: Sequence[View],
        structure: bytes = b"",
        metadata: bytes = b"",
        timeout_s: float | None = None,
        waits: bool = False,
    ) -> bool:
        """`send` of copies; or, then True, of the arrays themselves, if they were born in one placement of this session
        that is not published. Waits for memory, too, until timeout_s is over.
        """
    seen_notice: Final[int]  # the number of the last notice that a call on this end has raised
    def check(self, waits: bool, seen: int) -> int:
        """Raises what `send` would of this end and its peers, except notices up to `seen`; the new `seen`. A sender calls
        it that waits for memory.
        """
    def receive(self, private: bool = False, timeout_s: float | None = None, waits: bool = False) -> tuple[ShareInfo, list[View]]:
        """timeout_s: None: no limit. waits: goes on when a sender is lost."""
    def close(self, complete: bool = True) -> None: ...

@final
class WatchEnd:
    """A watch of the broker's events, open until `close` or until it is destroyed."""

    def next(self, timeout_s: float | None = None) -> tuple[str, int, str, str, int, int, int, int, int, int, str, int, str, str, str]:
        """The fields of arraybridge.broker.watch.Event. timeout_s: None: no limit."""
    def close(self) -> None: ...

class Core:
    def __init__(
        self,
        address: str,
        namespace: str,
        timeout_s: float,
        client: str,
        catalogue: bool = True,
        token: str = "",
        direct_channels: bool = True,
    ) -> None:
        """catalogue: find and hold shares without calls where possible. token: opens namespaces to this process. direct_channels:
        send and receive in channels without calls where possible.
        """
    def with_client(self, client: str) -> Core:
        """The same with another client name, for a forked child, which connects anew in any case."""
    def empty(
        self,
        arrays: Sequence[tuple[str, tuple[int, int, int], tuple[int, ...]]],
        name: str = "",
        options: PutOptions | None = None,
        device: tuple[int, int] = (1, 0),
        pinned: bool = False,
    ) -> Placement:
        """arrays: dtype name, code, shape. name, options: those of the publish that follows: a share beyond a limit is
        refused here. pinned: registered with the CUDA driver; host memory only."""
    def place(
        self,
        views: Sequence[View],
        name: str = "",
        options: PutOptions | None = None,
        device: tuple[int, int] | None = None,
    ) -> Placement:
        """device: None: the device of the views. From a GPU: ordered after the views' streams, complete on return."""
    def placement_of(self, views: Sequence[View]) -> Placement | None: ...
    def publish(self, placement: Placement, name: str = "", options: PutOptions | None = None) -> ShareInfo | None:
        """None: the options say not to wait."""
    def put(self, name: str, views: Sequence[View], options: PutOptions) -> tuple[ShareInfo | None, bool]:
        """As `publish` gives it, of copies; or, which the second value tells, of the arrays themselves, if they were born
        in one placement of this session that is not published, and are not to be sealed."""
    def acquire(
        self,
        name: str,
        id: int = 0,
        generation: int = 0,
        private: bool = False,
        wait_s: float = 0.0,
        broker_id: bytes = b"",
        note: str = "",
        newer_than: int = 0,
    ) -> tuple[ShareInfo, list[View]]:
        """broker_id: the run of the broker that the id belongs to; NOT_FOUND in another run. newer_than: with a name, only
        a share of a greater generation.
        """
    def acquire_many(
        self,
        wishes: Sequence[tuple[str, int, int, bytes]],
        private: bool = False,
        wait_s: float = 0.0,
        note: str = "",
    ) -> list[tuple[ShareInfo, list[View]]]:
        """All or none, in as few messages as possible. Each wish: (name, 0, 0, b""), or ("", id, generation,
        broker_id).
        """
    def note(self, info: ShareInfo, note: str) -> None:
        """Replaces the note of an acquire. Does not wait."""
    def withdraw(self, name: str, id: int = 0, generation: int = 0, broker_id: bytes = b"") -> None: ...
    def claim(self, name: str, newer_than: int, wait_s: float, lifetime_s: float, held: int = 0) -> int:
        """The number of the claim; 0: a share that is newer is there. `held`: a claim that is renewed."""
    def release_claim(self, claim: int) -> None: ...
    def outcome(self, code: int, message: str, reason: str, request: str, timeout_s: float) -> tuple[ShareInfo | None, StatusError | None]:
        """For a StatusError with these attributes: the published share (if it was a publish) and no error, or the
        reason why nothing was executed. Waits for the broker's answer, then raises the same error again.
        """
    def open_channel(self, name: str, sends: bool, terms: tuple[int, str, bool | None, int | None, str, bool]) -> ChannelEnd:
        """terms: capacity, mode (queue, broadcast or latest), drop_oldest, replay, run, fresh. 0, "" and None are as stated
        by the other ends.
        """
    def drain_channel(self, name: str, remove: bool = False) -> int: ...  # the number of arrays that were dropped
    def open_watch(self, kinds: Sequence[str], prefix: str = "") -> WatchEnd:
        """kinds: empty: all. ValueError: there is no such kind."""
    def list(self, prefix: str = "") -> list[dict[str, Any]]:
        """Each row: share (ShareInfo), maker, maker_process_id, leases, age_ms."""
    def stats(self) -> dict[str, int]: ...
    def client_stats(self) -> dict[str, int]: ...
    def server_info(self) -> dict[str, Any]: ...
    def flush(self) -> None: ...
    def confirm(self) -> None:
        """Waits until the broker has processed what was entered; raises its first error."""
    def settle(self) -> None: ...

def exchanger(type: type, /) -> Callable[[View], Any]:
    """A function that makes objects of a type with DLPack's exchange table, over the memory of Views. Does not copy.

    Raises, when it is called:
        TypeError: the type has no table, or the View is not host memory. Other errors of the table's owner pass
            through.
    """

def capsuled(take: Callable[[Any], Any], /) -> Callable[[View], Any]:
    """A function that calls `take` with a View's immutable_capsule() and returns the result."""

def exported(capsule: Any, /) -> View | None:
    """The View that a DLPack capsule was exported from, also a consumed one; None: another producer made it."""

def ndarray(view: View, /) -> Any:
    """The ndarray over a View's memory, read-only if the View is; the View is its base, if it has elements. Does not copy.

    Raises:
        BufferError: it is not host memory, NumPy has no such dtype, or the name of its dtype is of another one.
    """

def heeds_read_only(take: Callable[[Any], Any], /) -> bool:
    """True if `take` makes a read-only array of a read-only View and is called by no other consumer: from then on it
    gets protected memory as it is. One such consumer per process: NumPy's from_dlpack.
    """

def shortcut(routes: dict[Any, Any], array: Any, /, *wishes: Any) -> tuple[Any, Any] | None:
    """Converts an array that is like an earlier one, and returns it with its plan; None: not possible, use the full
    path.

    Args:
        direct_channels: the table of `arraybridge.conversion.shortcut`: (type(array), *wishes) to (read, caps_now or None, caps,
            plans), and plans from View.traits to (plan, show or None, count). A `read` may also return (result, key of
            its plan).
    """

@final
class PlanNote:
    """Remembers each thread's latest plan, and logs it at DEBUG.

    Args:
        of_thread: a threading.local of its own.
    """

    latest: Final[Plan | None]  # the calling thread's
    def __new__(cls, of_thread: threading.local, log: logging.Logger, /) -> Self: ...
    def __call__(self, plan: Plan, /) -> None: ...

@final
class PlanCount:
    """The number of deliveries by one plan. Thread-safe."""

    value: Final[int]
    def __new__(cls) -> Self: ...
    def add(self) -> None: ...

@disjoint_base
class ChannelBase:
    """The base class of Channel, with what its fast methods need."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self: ...
    def _prepare(
        self,
        broker: tuple[Any, ...],
        ends: dict[Any, ChannelEnd],
        unclaimed: Sized,
        makers: dict[type, Callable[[Any], View]],
        freeze: Callable[[Any], None],
        waits: bool,
        /,
    ) -> None:
        """Without it all calls go the full way.

        Args:
            broker: the attribute `_fast` of the Broker.
            ends: from a role to its ChannelEnd.
            unclaimed: what is received already.
            makers: from a class to what makes Views of its ordinary arrays, and raises for others.
            freeze: is called with an array that was sent in place.
            waits: as `waits` of `receive`.
        """

@final
class FastMethod:
    """A method of Broker ("get") or Channel ("send", "receive"): answered in C if the share is found without a call to the
    daemon, or the array is ordinary; else calls `function`.

    The attribute `_fast` of a Broker is (connection, forms, note, granted): `known_core` of the connection, from a
    framework's name to the last two arguments of `try_acquire`, what is called with a plan, and what is called with a share
    that has none and the framework. The Channel's `_error_of` makes an error of a role, its end, a StatusError and the
    timeout.

    Raises:
        ValueError: for another method.
    """

    def __new__(cls, function: Any, method: str, /) -> Self: ...
    def __call__(self, *arguments: Any, **options: Any) -> Any: ...

def try_acquire(core: Core, name: str, private: bool, plans: dict[Any, Any], /) -> tuple[Any, Any] | None:
    """The result for a share that is found without a call, and its plan; None: `core.acquire` is needed.

    A share without a plan is returned as ((ShareInfo, views), None), as `core.acquire` returns it.

    Args:
        plans: from View.traits of the one array of a share to (plan, show, count).
    """

def receive(end: ChannelEnd, private: bool, timeout_s: float | None, waits: bool, plans: dict[Any, Any], /) -> tuple[Any, Any]:
    """`ChannelEnd.receive`, with a result as `try_acquire` returns it."""

def put(
    core: Core, maker: Callable[[Any], View], name: str | None, array: Any, options: PutOptions, /
) -> tuple[ShareInfo | None, bool] | None:
    """`Core.put` for an ordinary array. None: it is not ordinary, or `name` is not a name.

    Args:
        maker: makes the View of an ordinary array of this class (`arraybridge.conversion.shortcut`), and raises for others.
    """

def empty_array(core: Core, shape: Any, dtype: tuple[str, tuple[int, int, int]], show: Callable[[View], Any], /) -> Any:
    """show(the View of new memory). None: the shape is not one that every framework has; nothing was done."""

def device_block(core: Core, nbytes: int, ordinal: int, timeout_s: float | None) -> Any: ...  # allocators.pool.Block
def host_reach(ordinal: int) -> tuple[str, str]: ...  # "one_memory", "mapped" or "none", and the reason for "none"
def on_gpu(share: View, ordinal: int) -> View: ...  # as the next four; StatusError: as in one_memory.h
def is_shown_by_gpus(share: View) -> bool: ...
def on_host(array: View) -> View | None: ...
def lies_on_host(address: int, ordinal: int) -> bool: ...
def registrations() -> int: ...
def letter(fields: tuple[str, str, int, int, bytes, bool, tuple[int, ...], int], /) -> bytes: ...
def read_letter(metadata: bytes, /) -> tuple[str, str, int, int, str, bool, tuple[int, ...], int] | None: ...
def tier(core: Core, action: int, name: str, generation: int, timeout_s: float | None, rank: tuple[int, int] = ...) -> tuple[Any, ...]: ...
def torch_memory() -> Any: ...  # allocators.torch_hook.Memory
def born_heap(core: Core, reserve_bytes: int) -> Any: ...
def born_imports(heap: Any, framework: str, libraries: Sequence[str], min_bytes: int) -> Any: ...
def tell_born(core: Core, framework: str, arrays: int, nbytes: int, missed: Mapping[str, tuple[int, int]]) -> bool: ...
def born_numpy(heap: Any, min_bytes: int, everywhere: bool) -> Any: ...  # broker.born.frameworks.Scope; heap: of `born_heap`
def wrap(obj: Any, /) -> View:
    """A View of an object that supports DLPack: exchange API on the type, __dlpack__, or an unused capsule. Does not
    copy.

    Raises:
        TypeError: obj supports none of them.
        BufferError: DLPack cannot describe the array, it lies neither in host memory nor on a CUDA GPU, or its
            description is invalid (rank, lanes, dtype, negative size, NULL data). Errors of the producer pass through.
    """

def wrap_buffer(obj: Any, /, *, read_only: bool | None = None) -> View:
    """A View of an object with the buffer protocol (PEP 3118). BufferError names a format that DLPack lacks."""

def wrap_constant(obj: Any, /) -> View:
    """wrap_buffer for an array that no process writes: read-only and constant."""

def wrap_array_interface(interface: dict[str, Any], owner: Any, /) -> View:
    """A View of an __array_interface__ (version 3) dictionary. Keeps the dictionary and `owner` alive."""

def wrap_cuda_array_interface(interface: dict[str, Any], owner: Any, /) -> View:
    """A View of a __cuda_array_interface__ (version 2 or 3), on the GPU that its address belongs to."""

def gpus() -> list[str]:
    """The UUIDs of the CUDA GPUs that this process sees, by ordinal; empty without a driver."""

def gpu_reaches(start: int, end: int, /) -> bool:
    """True if copies from one GPU to the other are direct and do not go through the host."""

@final
class CaptureScope:
    """While one lives, this library does not query whether all work of a GPU has ended."""

def copy_to_heap(view: View, /) -> View:
    """A private, writable, compact, 256-byte aligned copy in this process's host memory, also of memory on a GPU.
    MemoryError if there is no room.
    """

def copy_to_gpus(sources: Sequence[View], destinations: Sequence[View], /) -> None:
    """Copies each source, in host memory or on a GPU, into the View of the same index: compact memory on a GPU, of the
    same size. Complete on return. From host memory it goes through pinned memory, with one wait per GPU and stream.

    Raises:
        BufferError: the counts differ, a View is not suitable, or the driver fails.
    """
