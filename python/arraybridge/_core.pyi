"""The extension: bytes and arrays, no policy, no framework. Everything here releases the GIL while it waits or copies.

Errors of the broker arrive as StatusError(code, message, reason, request); arraybridge.errors turns them into classes.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, final

dlpack_version: Final[tuple[int, int]]

class StatusError(Exception):
    code: int
    message: str
    reason: str
    request: str  # which `Core.outcome` takes; "": what failed was not done

@final
class View:
    """Memory as frameworks see it: DLPack in both dialects, buffer, array interfaces. Immutable, weak-referenceable."""

    shape: Final[tuple[int, ...]]
    strides: Final[tuple[int, ...]]  # elements
    dtype: Final[Any]  # numpy.dtype; the logical name where NumPy and ml_dtypes have none, or are not installed
    dtype_name: Final[str]  # logical name; "" if it has none
    dtype_code: Final[tuple[int, int, int]]  # DLPack code, bits, lanes
    ndim: Final[int]
    size: Final[int]
    nbytes: Final[int]
    address: Final[int]  # 0 if there are no elements
    device: Final[tuple[int, int]]
    read_only: Final[bool]
    compact: Final[bool]
    constant: Final[bool]  # no process writes these bytes any more
    traits: Final[int | None]  # all that a plan needs of compact host memory, to look one up by; None of other memory
    # AttributeError for a dtype that the protocol lacks, and for memory of the other kind.
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
    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """NumPy's functions, which take Views of host memory. TypeError: memory of a GPU."""
    def complete(self) -> View:
        """The same memory, once what its producer has queued on a GPU has ended, also in another process. Waits.

        Raises:
            BufferError: that GPU, or its driver, failed, or the producer's process died before.
        """
    def for_immutable_consumer(self) -> View:
        """The same memory for a consumer that does not write (JAX, TensorFlow): an unversioned capsule of it may alias read-only
        bytes. A copy, of which a CopyWarning tells, where the address is no multiple of 64."""
    def immutable_capsule(self) -> Any:
        """for_immutable_consumer().__dlpack__(), without the View between; on a GPU no stream is ordered."""
    def plain(self) -> View:
        """The same memory for a consumer that is known: DLPack gives it as it is."""
    def protected(self, constant: bool = False, origin: View | None = None) -> View:
        """The same memory for consumers that are not known: where it is read-only no write through DLPack reaches it. Memory of
        a share leaves as a copy-on-write mapping, other memory as a copy.

        Args:
            constant: nothing writes to these bytes any more.
            origin: the View of a share in whose memory these bytes may lie.
        """
    def copy_on_write(self) -> View | None:
        """The bytes of a share in host memory in a copy-on-write mapping of their own, writable; None of other memory."""
    def named(self, dtype: str, code: tuple[int, int, int] | None = None) -> View:
        """The same memory under another logical dtype name, and code of the same width."""

@final
class Placement:
    """Bytes in an arena of this session, not yet published."""

    @property
    def views(self) -> list[View]: ...

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
    kind: Final[str]  # memfd, cuda_vmm, cuda_ipc: how its memory comes to this process
    enforced: Final[bool]
    structure: Final[bytes]
    metadata: Final[bytes]
    unnamed: Final[bool]

@final
class ChannelEnd:
    """One end of a channel, open until it is closed or gone; then it was abandoned."""

    @property
    def capacity(self) -> int: ...
    def send(
        self, placement: Placement, structure: bytes = b"", metadata: bytes = b"", timeout_s: float | None = None
    ) -> None:
        """timeout_s: None: as long as it takes."""
    def receive(self, private: bool = False, timeout_s: float | None = None) -> tuple[ShareInfo, list[View]]:
        """timeout_s: None: as long as it takes."""
    def close(self, complete: bool = True) -> None: ...

@final
class WatchEnd:
    """What happens at the broker, until it is closed or gone."""

    def next(
        self, timeout_s: float | None = None
    ) -> tuple[str, int, str, str, int, int, int, int, int, int, str, int, str, str, str]:
        """The fields of arraybridge.broker.watch.Event. timeout_s: None: as long as it takes."""
    def close(self) -> None: ...

class Core:
    def __init__(
        self,
        address: str,
        namespace: str,
        timeout_s: float,
        client: str,
        holds: bool = True,
        token: str = "",
        direct_channels: bool = True,
    ) -> None:
        """holds: shares are found and held without calls where that is possible. token: opens namespaces to this process.
        direct_channels: channels send and receive without calls where that is possible.
        """
    def empty(
        self,
        arrays: Sequence[tuple[str, tuple[int, int, int], tuple[int, ...]]],
        own: bool = False,
        name: str = "",
        structure: bytes = b"",
        metadata: bytes = b"",
        device: tuple[int, int] = (1, 0),
    ) -> Placement:
        """arrays: dtype name, code, shape. What the publish that follows would find beyond a limit is refused here."""
    def place(
        self,
        views: Sequence[View],
        own: bool = False,
        name: str = "",
        structure: bytes = b"",
        metadata: bytes = b"",
        device: tuple[int, int] | None = None,
    ) -> Placement:
        """device: None: where the views are. From a GPU: after the views' streams, and done when it returns."""
    def placement_of(self, views: Sequence[View]) -> Placement | None: ...
    def publish(
        self,
        placement: Placement,
        name: str = "",
        replace: bool = False,
        sealed: bool = False,
        structure: bytes = b"",
        metadata: bytes = b"",
        lifetime_s: float = 0.0,
        note: str = "",
    ) -> ShareInfo:
        """note: for who traces the share, at most 64 bytes of UTF-8; so everywhere."""
    def enter(
        self,
        placement: Placement,
        name: str,
        replace: bool = False,
        sealed: bool = False,
        structure: bytes = b"",
        metadata: bytes = b"",
        lifetime_s: float = 0.0,
        note: str = "",
    ) -> None:
        """publish, without waiting for the broker where it can take the share from a ring. What fails is raised by the
        next enter, which then does nothing else, by confirm or by flush."""
    def put(self, view: View, name: str, note: str = "") -> bool:
        """place and enter. False: nothing was done, for the array was born in a placement of this session."""
    def acquire(
        self,
        name: str,
        id: int = 0,
        generation: int = 0,
        private: bool = False,
        wait_s: float = 0.0,
        broker_id: bytes = b"",
        note: str = "",
    ) -> tuple[ShareInfo, list[View]]:
        """broker_id: of which life of the broker the id is; NOT_FOUND in another one."""
    def acquire_many(
        self,
        wishes: Sequence[tuple[str, int, int, bytes]],
        private: bool = False,
        wait_s: float = 0.0,
        note: str = "",
    ) -> list[tuple[ShareInfo, list[View]]]:
        """All or none, in as few messages as the broker takes. Each wish: (name, 0, 0, b""), or ("", id, generation, broker_id)."""
    def note(self, info: ShareInfo, note: str) -> None:
        """What came of an acquire, instead of what was said with it. Does not wait."""
    def withdraw(self, name: str, id: int = 0, generation: int = 0, broker_id: bytes = b"") -> None: ...
    def outcome(
        self, code: int, message: str, reason: str, request: str, timeout_s: float
    ) -> tuple[ShareInfo | None, StatusError | None]:
        """Of a StatusError with these attributes: the share that was published all the same, if it was a publish, and no
        error; or why nothing was done. Waits for the broker's answer, then raises the same error again."""
    def open_channel(self, name: str, sends: bool, capacity: int = 0) -> ChannelEnd:
        """capacity: 0: whatever it is."""
    def open_watch(self, kinds: Sequence[str], prefix: str = "") -> WatchEnd:
        """kinds: none: all. ValueError: there is no such kind."""
    def list(self, prefix: str = "") -> list[dict[str, Any]]:
        """Each: share (ShareInfo), maker, maker_process_id, leases, age_ms."""
    def stats(self) -> dict[str, int]: ...
    def client_stats(self) -> dict[str, int]: ...
    def server_info(self) -> dict[str, Any]: ...
    def flush(self) -> None: ...
    def confirm(self) -> None:
        """Waits until the broker has taken what was entered; raises what of it failed."""
    def settle(self) -> None: ...

def exchanger(type: type, /) -> Callable[[View], Any]:
    """What makes objects of a type that has DLPack's exchange table, over the memory of Views. Nothing is copied.

    Raises, when it is called:
        TypeError: the type has no table, or the View is of no host memory. What the table's owner itself raises.
    """

def capsuled(take: Callable[[Any], Any], /) -> Callable[[View], Any]:
    """What calls `take` with a View's immutable_capsule(), and returns what it returns."""

def exported(capsule: Any, /) -> View | None:
    """The View that a DLPack capsule was made of, also one that NumPy has taken; None: another producer made it."""

def heeds_read_only(take: Callable[[Any], Any], /) -> bool:
    """Whether `take` makes something read-only of a read-only View, and calls as nothing else does: then it gets protected
    memory as it is from now on. One consumer of the process: NumPy's from_dlpack."""

def shortcut(roads: dict[Any, Any], array: Any, /, *wishes: Any) -> tuple[Any, Any] | None:
    """What becomes of an array that is like one before, and its plan; None: there is none, or anything went wrong.

    Args:
        roads: as `arraybridge.convert.shortcut` keeps them: (type(array), *wishes) to (read, caps_now or None, caps, plans), and
            plans from View.traits to (plan, show or None, count). A `read` may also return (what is wanted, key of its
            plan).
    """

def held(core: Core, name: str, private: bool, plans: dict[Any, Any], /) -> tuple[Any, Any] | None:
    """The result for a share that is found without a call, and its plan; None: only `core.acquire` can tell.

    A share for which there is no plan comes as ((ShareInfo, views), None), as `core.acquire` gives it.

    Args:
        plans: from View.traits of a share's one array to (plan, show, count).
    """

def wrap(obj: Any, /) -> View:
    """A View of anything that speaks DLPack: exchange API on the type, __dlpack__, or a live capsule. Nothing is copied.

    Raises:
        TypeError: obj speaks none of them.
        BufferError: DLPack cannot say it, it is neither host memory nor a CUDA GPU's, or it is not to be trusted
            (rank, lanes, dtype, negative size, NULL data). What the producer itself raises passes through.
    """

def wrap_buffer(obj: Any, /, *, read_only: bool | None = None) -> View:
    """A View of an object with the buffer protocol (PEP 3118). BufferError names a format that DLPack lacks."""

def wrap_constant(obj: Any, /) -> View:
    """wrap_buffer, of an array that nothing writes to: read-only and constant."""

def wrap_array_interface(interface: dict[str, Any], owner: Any, /) -> View:
    """A View of an __array_interface__ (version 3) dictionary, which is kept alive, as owner is."""

def wrap_cuda_array_interface(interface: dict[str, Any], owner: Any, /) -> View:
    """A View of a __cuda_array_interface__ (version 2 or 3), on the GPU that its address belongs to."""

def gpus() -> list[str]:
    """The UUIDs of the CUDA GPUs that this process sees, by number; empty without a driver."""

def gpu_reaches(start: int, end: int, /) -> bool:
    """Whether copies from one of these GPUs to another go directly, not by way of the host."""

@final
class CaptureScope:
    """While one lives, nothing in this process asks a GPU whether all of its work has ended."""

def copy_to_heap(view: View, /) -> View:
    """A private, writable, compact, 256-byte aligned copy in this process's host memory, also of a GPU's. MemoryError if
    there is no room."""

def copy_to_gpus(sources: Sequence[View], rooms: Sequence[View], /) -> None:
    """Writes each source, in host memory, into the View of the same index: compact memory on a GPU, of as many bytes. Done on
    return, by pinned memory and with one wait for all that go to one GPU and stream.

    Raises:
        BufferError: they are not as many, or not such Views, or the driver fails.
    """
