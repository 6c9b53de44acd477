# SPDX-License-Identifier: Apache-2.0
"""Large arrays travel between the processes of multiprocessing, concurrent.futures and joblib as references.

`install()` registers reducers with multiprocessing's pickler, which Pool, Queue, Pipe and ProcessPoolExecutor use, and
with loky's (joblib). An array of `threshold` bytes or more is put into broker memory, one copy, and only its name goes
through the pipe. Later writes of the sender do not reach it. The receiver gets a copy-on-write mapping: an array of its own that can be written, as pickle promises,
and a page is copied when it is first written.

Each pickle is read once, as everything is that these modules send. Reading it withdraws the share, and its memory is
free when the array has gone. An array that nobody receives, because a worker was killed, goes after `lifetime`. Without a
broker, or without room there, an array goes by value, with a CopyWarning.

Tensors of one message that share a storage, such as tied weights and views, share one in the receiver, too, and the bytes
that they use are sent once. The tensors of two messages never share one.

Example:
    import arraybridge.multiprocessing
    arraybridge.multiprocessing.install()
    with concurrent.futures.ProcessPoolExecutor() as pool:
        results = list(pool.map(work, images))
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import multiprocessing.reduction
import sys
import threading
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from arraybridge.adapters import ensure_module, numpy as numpy_adapter
from arraybridge.arguments import check_seconds
from arraybridge.broker import references
from arraybridge.broker.broker import Broker, remade
from arraybridge.broker.fork_lock import lock_of
from arraybridge.broker.placing import placement_of, source_of_share
from arraybridge.broker.share import Share
from arraybridge.errors import (
    BrokerError,
    CopyWarning,
    FrameworkNotAvailable,
    InvalidRequest,
    MemoryConversionError,
    ShareNotFound,
)
from arraybridge.storages import Layout, Message, ReceivedStorage, SentStorage

Reduced = tuple[Any, ...]
Reduce = Callable[[Any], Reduced]
Table = dict[type, Reduce]

# Frameworks and the exact classes of their arrays; a pickler asks for the exact class. A framework that is not imported,
# or has no such class, is left as it is.
_CLASSES: Final = (
    ("numpy", "ndarray"),
    ("torch", "Tensor"),
    ("torch", "nn.Parameter"),
    ("jax", "_src.array.ArrayImpl"),
    ("tensorflow", "__internal__.EagerTensor"),
    ("cupy", "ndarray"),
    ("pyclesperanto", "Array"),
    # Tables, which cannot be written. The columns of pandas are arrays of NumPy.
    ("pyarrow", "Table"),
    ("polars", "DataFrame"),
)


class Settings(NamedTuple):
    """The arguments of `install`; each reference carries them, so that its reader sends results in the same way."""

    broker: Broker
    threshold: int
    lifetime: float


_lock = lock_of(globals(), threading.RLock)
_settings: Settings | None = None
_given: dict[int, weakref.ref[Any]] = {}  # arrays that `give` was told of, by id
_wanted = True  # False: `uninstall` was called, and references that arrive install nothing
_replaced: list[tuple[Table, type, Reduce | None, Reduce]] = []  # (table, class, the reducer before, ours)
# Joblib's function that makes the reducers of an executor, and ours.
_joblibs: tuple[Callable[..., tuple[Table, Table]], Callable[..., tuple[Table, Table]]] | None = None
_absent: list[tuple[str, str]] = []  # of _CLASSES: those that are not registered
_hooks: list[tuple[Any, str, Callable[..., Any], Callable[..., Any]]] = []  # (owner, its function, the one before, ours)


# None: this thread runs no pickler, or one whose tensors go torch's own way.
_message: Final = ContextVar[Message | None]("message", default=None)


def install(broker: Broker | None = None, *, threshold: int = 1 << 16, lifetime: float = 300.0) -> None:
    """Registers the reducers for NumPy and for the frameworks that are imported, now or later.

    Call it in the parent, and after the import of joblib or loky. Processes that are forked from it have the reducers too; others (spawn, forkserver, loky)
    register them when the first reference arrives, or with `initializer=arraybridge.multiprocessing.install`.

    Joblib keeps its own way for the arguments of jobs, a file for each large array, unless `max_nbytes` is None; its results
    go by reference when the workers have called `install`.

    Tensors of torch are then passed by value, as arrays are. Torch's own reducer moves a tensor into memory that both
    sides write; it still passes smaller tensors and those that require gradients, unless their storage is in the message
    already, those that are shared already (`share_memory_()`, GPUs), and those that are not dense.

    Args:
        broker: holds the arrays; None: `Broker()`. Other processes make a Broker with the same arguments.
        threshold: bytes from which on arrays are passed by reference.
        lifetime: seconds after which an array that nobody has received is dropped.

    Raises:
        InvalidRequest: a negative threshold, or a lifetime that is not a positive number of seconds.

    Example:
        >>> import arraybridge.multiprocessing
        >>> arraybridge.multiprocessing.install(broker)
        >>> arraybridge.multiprocessing.uninstall()
    """
    global _settings, _wanted
    if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 0:
        raise InvalidRequest(f"threshold must be a number of bytes, not {threshold!r}")
    if check_seconds(lifetime, "lifetime") <= 0:
        raise InvalidRequest("lifetime must be longer than 0 s: nobody could receive an array in time")
    with contextlib.suppress(FrameworkNotAvailable):
        ensure_module("numpy")
    with _lock:
        _settings = Settings(broker or (_settings.broker if _settings else Broker()), threshold, lifetime)
        _wanted = True
        _register()


def uninstall() -> None:
    """Restores the reducers of before. Arrays that are on their way are still received."""
    global _settings, _wanted, _joblibs
    with _lock:
        for table, kind, before, ours in reversed(_replaced):
            if table.get(kind) is ours and before is not None:
                table[kind] = before
            elif table.get(kind) is ours:
                del table[kind]
        _replaced.clear()
        for owner, name, function, hook in _hooks:
            if getattr(owner, name) is hook:
                setattr(owner, name, function)
        _hooks.clear()
        executor = sys.modules.get("joblib.executor")
        if _joblibs is not None and getattr(executor, "get_memmapping_reducers", None) is _joblibs[1]:
            executor.get_memmapping_reducers = _joblibs[0]  # type: ignore[union-attr]
        _settings, _wanted, _joblibs = None, False, None


def ensure_installed(broker: Broker | None) -> Broker:
    """The Broker of `install`, which is called, with `broker`, if it was not. Joblib and loky, if they were imported since, are registered, too."""
    with _lock:
        if _settings is None:
            install(broker)
        elif broker is not None and _settings.broker is not broker:
            install(broker, threshold=_settings.threshold, lifetime=_settings.lifetime)
        _register()
        assert _settings is not None
        return _settings.broker


def give(array: Any) -> None:
    """Promises that this array, which was born in broker memory, is not written once it is pickled: it is not copied."""
    key = id(array)
    _given[key] = weakref.ref(array, lambda _: _given.pop(key, None))


def _class_of(framework: str, path: str) -> type | None:
    """None: the framework is not imported, or not completely, or it is loaded lazily, or has no such class."""
    module = sys.modules.get(framework)
    if type(module).__name__ == "_LazyModule" or getattr(getattr(module, "__spec__", None), "_initializing", False):
        return None
    kind = functools.reduce(lambda found, name: getattr(found, name, None), path.split("."), module)
    return kind if isinstance(kind, type) else None


def _register() -> None:
    global _joblibs
    _absent.clear()
    for framework, path in _CLASSES:
        kind = _class_of(framework, path)
        if kind is None:
            _absent.append((framework, path))
            continue
        for table in _tables():
            before = table.get(kind)
            if any(table is known and kind is its and before is ours for known, its, _, ours in _replaced):
                continue
            ours = functools.partial(_reduce, framework, before)
            table[kind] = ours
            _replaced.append((table, kind, before, ours))
    for owner, name, hooked in _makers():
        if not any(owner is known and name == its for known, its, _, _ in _hooks):
            function = getattr(owner, name)
            hook = hooked(function)
            setattr(owner, name, hook)
            _hooks.append((owner, name, function, hook))
    executor = sys.modules.get("joblib.executor")
    if executor is not None and _joblibs is None and hasattr(executor, "get_memmapping_reducers"):
        theirs = executor.get_memmapping_reducers
        _joblibs = theirs, functools.partial(_joblib_reducers, theirs)
        executor.get_memmapping_reducers = _joblibs[1]  # type: ignore[attr-defined]


def _register_late() -> None:
    """Registers the frameworks that were imported since. REQUIRES: the pickler has not copied its table yet."""
    if any(framework in sys.modules and _class_of(framework, path) is not None for framework, path in list(_absent)):
        with _lock:
            if _settings is not None:
                _register()


def _made(function: Callable[..., Any]) -> Callable[..., Any]:
    """ForkingPickler.__init__"""

    @functools.wraps(function)
    def hook(pickler: Any, *arguments: Any, **options: Any) -> Any:
        _register_late()
        pickler._arraybridge_file = arguments[0] if arguments else options.get("file")
        return function(pickler, *arguments, **options)

    return hook


def _dumped(function: Callable[..., Any]) -> Callable[..., Any]:
    """ForkingPickler.dump"""

    @functools.wraps(function)
    def hook(pickler: Any, thing: Any) -> Any:
        file = getattr(pickler, "_arraybridge_file", None)
        return _write(file, lambda: function(pickler, thing), pickler.clear_memo)

    return hook


def _dumped_by_loky(function: Callable[..., Any]) -> Callable[..., Any]:
    """loky.backend.reduction.dump"""

    @functools.wraps(function)
    def hook(thing: Any, file: Any, *arguments: Any, **options: Any) -> Any:
        _register_late()
        return _write(file, lambda: function(thing, file, *arguments, **options), lambda: None)

    return hook


def _write(file: Any, pickle: Callable[[], Any], forget: Callable[[], Any]) -> Any:
    """Writes a message: `pickle` writes it to the file, and the storages of its tensors, which it names, are put. If they
    cannot be, the message is written once more, with its tensors in torch's own way.

    Args:
        forget: makes the pickler forget what it has written.
    """
    settings, before, message = _settings, _message.get(), Message()
    try:
        begin = file.tell() if settings is not None and file.seekable() else None
    except (AttributeError, OSError, ValueError):
        begin = None
    try:
        _message.set(None if begin is None else message)
        done = pickle()
        if settings is None or not message.storages:
            return done
        try:
            message.put_storages(settings.broker, settings.lifetime)
            return done
        except BrokerError as error:
            nbytes = sum(storage.nbytes for storage in message.storages.values())
            warnings.warn(f"tensors of {nbytes} bytes are passed by value: {error}", CopyWarning, stacklevel=3)
        message.withdraw()
        file.seek(begin)
        file.truncate()
        forget()
        _message.set(None)
        return pickle()
    except BaseException:
        message.withdraw()
        raise
    finally:
        _message.set(before)


def _joblib_reducers(theirs: Callable[..., tuple[Table, Table]], **options: Any) -> tuple[Table, Table]:
    """Joblib registers reducers for arrays of NumPy with each executor: for jobs one that writes a large array once, into
    a file that all jobs map, unless `max_nbytes` is None; for results one that pickles them. The first one stays.
    """
    tables = theirs(**options)
    for table in tables if options.get("max_nbytes", 1) is None else tables[1:]:
        for kind in table:
            if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
                table[kind] = functools.partial(_reduce, "numpy", table[kind])
    return tables


def _tables() -> list[Table]:
    """The reducers that the picklers of this process use, by class."""
    tables = [getattr(multiprocessing.reduction.ForkingPickler, "_extra_reducers")]
    return tables + [getattr(module, "_dispatch_table") for module in _lokys()]


def _makers() -> list[tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]]:
    """The functions that make and run these picklers, their owners, and what makes a hook of them."""
    pickler = multiprocessing.reduction.ForkingPickler
    lokys = [(module, "dump", _dumped_by_loky) for module in _lokys()]
    return [(pickler, "__init__", _made), (pickler, "dump", _dumped), *lokys]


def _lokys() -> list[Any]:
    names = "loky.backend.reduction", "joblib.externals.loky.backend.reduction"
    return [sys.modules[name] for name in names if name in sys.modules]


def _reduce(framework: str, before: Reduce | None, array: Any) -> Reduced:
    settings = _settings
    if framework == "cupy" and threading.current_thread() is not threading.main_thread():
        # Queue and Pool pickle in threads of their own, whose current stream is not that of the sender.
        with sys.modules["cupy"].cuda.Device(array.device.id) as gpu:
            gpu.synchronize()
    if settings is not None:
        try:
            reduced = _REDUCERS.get(framework, _reduced_array)(framework, array, settings)
            if reduced is not None:
                return reduced
        except MemoryConversionError:
            pass  # of objects, for example
        except BrokerError as error:
            # Queue pickles in a thread of its own, and drops what raises there: its reader would wait for ever.
            warnings.warn(f"an array of {_bytes_of(framework, array)} bytes is passed by value: {error}", CopyWarning, stacklevel=2)
    theirs: Any = before or copyreg.dispatch_table.get(type(array))
    own: Reduced = theirs(array) if theirs is not None else array.__reduce_ex__(4)
    return own


def _reduced_array(framework: str, array: Any, settings: Settings) -> Reduced | None:
    """None: it does not go by reference."""
    if not _travels(framework, array, settings.threshold):
        return None
    order = _order_of(array) if framework == "numpy" else None
    laid = array if order is None else array.transpose(order)
    sealed = _is_ours_to_write(settings.broker, array, laid)
    share = settings.broker.put(laid, _new_name(), sealed=sealed, lifetime=settings.lifetime)
    if (message := _message.get()) is not None:
        message.shares.append(share)
    return _received, (share, framework, settings.threshold, settings.lifetime, order)


def _reduced_table(framework: str, table: Any, settings: Settings) -> Reduced | None:
    if _bytes_of(framework, table) < max(settings.threshold, 1):
        return None
    share = settings.broker.put(table, _new_name(), lifetime=settings.lifetime)
    if (message := _message.get()) is not None:
        message.shares.append(share)
    return _received, (share, framework, settings.threshold, settings.lifetime, None)


def _reduced_tensor(framework: str, tensor: Any, settings: Settings) -> Reduced | None:
    """As `_reduced_array`. A tensor of any size goes with its storage, if the message has that already."""
    message = _message.get()
    torch = sys.modules["torch"]
    if message is None or tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu" or not tensor.numel():
        return None
    number = tensor.untyped_storage()._cdata
    storage = message.storages.get(number)
    if storage is None and (type(tensor) is not torch.Tensor or not _travels(framework, tensor, settings.threshold)):
        return None
    if tensor.is_shared() or (tensor.requires_grad and not tensor.is_leaf):
        return None
    sealed = _is_ours_to_write(settings.broker, tensor, tensor)
    if storage is None:
        broker, name = settings.broker, _new_name()
        where = broker.address, broker.namespace, name
        storage = SentStorage(name, (_storage_received, (*where, settings.threshold, settings.lifetime)))
        message.storages[number] = storage
    storage.sealed |= sealed
    return _tensor_received, (storage, storage.add(tensor), type(tensor), tensor.requires_grad)


_REDUCERS: Final = {"torch": _reduced_tensor, "pyarrow": _reduced_table, "polars": _reduced_table}


def _new_name() -> str:
    """A share without a name would end soon after its maker, which may end before its array is received."""
    return f"multiprocessing-{uuid.uuid4().hex}"


def _is_ours_to_write(broker: Broker, array: Any, laid: Any) -> bool:
    """Whether a put would publish the very memory of the array, which its sender may still write: it was born there."""
    given = _given.pop(id(array), None)
    if given is not None and given() is array:
        return False
    source = source_of_share(laid)
    placement = broker._connection.ask(lambda core: placement_of(core, [source]))
    return placement is not None and not all(view.read_only for view in placement.views)


def _bytes_of(framework: str, array: Any) -> int:
    if framework == "polars":
        return int(array.estimated_size())
    return int(array.dtype.size * array.shape.num_elements() if framework == "tensorflow" else array.nbytes)


def _order_of(array: Any) -> tuple[int, ...] | None:
    """The dimensions of an array of NumPy whose memory is compact but not row-major, by falling strides; None: it is
    row-major, or has gaps.
    """
    if array.flags.c_contiguous:
        return None
    order = tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    return order if array.transpose(order).flags.c_contiguous else None


def _travels(framework: str, array: Any, threshold: int) -> bool:
    """Whether the array is large, and all that a pickle keeps of it travels."""
    if _bytes_of(framework, array) < max(threshold, 1):
        return False
    if framework == "torch":
        return not array.requires_grad and not array.is_shared()
    if framework == "numpy":
        return bool(array.dtype.isnative and not array.dtype.hasobject) and not _is_special(array.dtype)
    return framework != "jax" or (len(array.devices()) == 1 and not array.weak_type)


def _is_special(dtype: Any) -> bool:
    """Whether a structured dtype has properties that do not travel: of np.record, or aligned."""
    if dtype.fields is None:
        return dtype.subdtype is not None and _is_special(dtype.subdtype[0])
    special = dtype.type is not sys.modules["numpy"].void or dtype.isalignedstruct
    return special or any(_is_special(field[0]) for field in dtype.fields.values())


def _received(share: Share, framework: str, threshold: int, lifetime: float, order: tuple[int, ...] | None) -> Any:
    broker = share._broker
    with _read_once(broker, share, threshold, lifetime):
        array = numpy_adapter.view(share._plain_view(private=True)) if framework == "numpy" else share.to(framework)
    return array if order is None else array.transpose(sorted(range(len(order)), key=order.__getitem__))


def _storage_received(address: str, namespace: str, name: str, threshold: int, lifetime: float) -> ReceivedStorage:
    broker = references.broker_at(address, namespace, lambda: remade(address, namespace, "never", 10.0))
    with _read_once(broker, name, threshold, lifetime):
        return ReceivedStorage(broker.get(name, "torch", info=True))


def _tensor_received(storage: ReceivedStorage, layout: Layout, kind: type, requires_grad: bool) -> Any:
    tensor = storage.tensor(layout)
    return tensor.requires_grad_(requires_grad) if kind is sys.modules["torch"].Tensor else kind(tensor, requires_grad)


@contextlib.contextmanager
def _read_once(broker: Broker, share: Share | str, threshold: int, lifetime: float) -> Iterator[None]:
    """For the reading of a share, which is then withdrawn. This process sends as the sender did, unless it has a wish of its
    own.
    """
    with _lock:
        if _wanted and _settings is None:
            install(broker, threshold=threshold, lifetime=lifetime)
    try:
        yield
    except ShareNotFound as gone:
        what = f"the array of a pickle is gone: it was read before, or not within {lifetime:g} s"
        raise ShareNotFound(f"{what}; pass a longer lifetime to arraybridge.multiprocessing.install ({gone})") from None
    with contextlib.suppress(BrokerError):  # its lifetime has ended, or the broker: the array is there all the same
        broker.withdraw(share)
