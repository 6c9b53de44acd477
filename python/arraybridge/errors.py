# SPDX-License-Identifier: Apache-2.0
"""The error classes: every error is a BrokerError *and* the builtin that a user would guess.

Errors of the broker have gRPC's status code in `.code`; errors of conversions have source, target, step and reason. All
of them can be pickled, so that they pass through a multiprocessing pool unchanged.
"""

from __future__ import annotations

import errno
import os
import resource  # imported here, because nothing can be imported when no descriptor is left
from typing import TYPE_CHECKING, Any, Self

from arraybridge import autograph

if TYPE_CHECKING:
    from arraybridge.planner import Plan

__all__ = [
    "BrokerError",
    "BrokerTimeout",
    "BrokerUnavailable",
    "ChannelClosed",
    "CopyWarning",
    "DeviceFallbackWarning",
    "DeviceUnavailable",
    "EventsLost",
    "FrameworkNotAvailable",
    "InvalidDevice",
    "InvalidMemoryType",
    "InvalidRequest",
    "MemoryConversionError",
    "OutOfDescriptors",
    "OutOfMemory",
    "PeerGone",
    "PermissionDenied",
    "ShareExists",
    "ShareNotFound",
    "SourceTypeMismatch",
    "UnsupportedArray",
    "UnsupportedDtype",
    "WatchClosed",
    "ZeroCopyUnavailable",
]


def printable(text: str) -> str:
    """Escapes characters that a terminal would interpret (control characters, changes of writing direction), because
    names and dtypes come from other processes. Keeps line ends.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


class BrokerError(Exception):
    """The root of all errors of this package.

    Attributes:
        code: the gRPC status code of a broker's answer, 0 for errors without one.
        message: the text, which `str` also returns, with control characters escaped.
        reason: a short machine-readable word of the broker, or the reason of a conversion error.
        ag_pass_through: for TensorFlow: its AutoGraph passes the error on unchanged.

    Example:
        >>> try:
        ...     broker.get("nothing")
        ... except arraybridge.BrokerError as error:
        ...     print(error.reason)
        SHARE_NOT_FOUND
    """

    # AutoGraph passes errors with this attribute unchanged; others leave a tf.function as its StagingError.
    ag_pass_through = True

    def __init__(self, message: str = "", code: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason

    def at(self, path: str) -> Self:
        """The same error for the part of a tree with this path."""
        self.message = f"{path}: {self.message}"
        return self

    def suggest(self, name: str) -> None:
        """Adds a name that the caller may have meant, before the remedy."""
        remedy = REMEDIES.get(self.reason, "")
        self.message = self.message.replace(f"; {remedy}", f"; did you mean {name!r}? {remedy}", 1)

    def __str__(self) -> str:
        # KeyError would print the quoted message, and OSError has a format of its own.
        return printable(self.message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code, self.reason)


class ShareNotFound(BrokerError, KeyError):
    """No share has this name, id or generation, or it has ended.

    Example:
        >>> broker.get("nothing")
        Traceback (most recent call last):
        arraybridge.errors.ShareNotFound: ...
    """


class ShareExists(BrokerError, ValueError):
    """The name is taken; `replace=True` publishes the next generation.

    Example:
        >>> share = broker.put(np.ones(3), "taken")
        >>> broker.put(np.ones(3), "taken")
        Traceback (most recent call last):
        arraybridge.errors.ShareExists: ...
    """


class OutOfMemory(BrokerError, MemoryError):
    """The broker had no room before the deadline; the message names the quota and its numbers.

    Example:
        >>> broker.empty(2**62, "uint8")
        Traceback (most recent call last):
        arraybridge.errors.OutOfMemory: ...
    """


class OutOfDescriptors(BrokerError, OSError):
    """No file descriptor is left in this process (RLIMIT_NOFILE, `ulimit -n`), or in the system (fs.file-max).

    Attributes:
        errno: EMFILE: limit of this process; ENFILE: limit of the system.

    Example:
        >>> try:
        ...     array = broker.get("nothing")
        ... except arraybridge.OutOfDescriptors as error:
        ...     print("raise RLIMIT_NOFILE" if error.errno == errno.EMFILE else "raise fs.file-max")
        ... except arraybridge.ShareNotFound:
        ...     array = None
    """

    def __init__(self, message: str = "", code: int = 0, reason: str = "", errno: int = errno.EMFILE) -> None:
        super().__init__(message, code, reason)
        self.errno = errno

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code, self.reason, self.errno)


class PermissionDenied(BrokerError, PermissionError):
    """The namespace's access list refuses this process.

    Example:
        >>> try:
        ...     share = Broker(broker.address, namespace="shared").put(np.ones(3))
        ... except arraybridge.PermissionDenied:    # pass token=, or use a namespace of this user
        ...     share = broker.put(np.ones(3))
    """


class BrokerUnavailable(BrokerError, ConnectionError):
    """No broker answers, and none may or could be started.

    Example:
        >>> Broker("/no/such/directory", start="never").list()
        Traceback (most recent call last):
        arraybridge.errors.BrokerUnavailable: ...
    """


class BrokerTimeout(BrokerError, TimeoutError):
    """The deadline passed before the broker could answer. `Broker.outcome` has the outcome of the request.

    Attributes:
        request: identifies the request if the broker may still have executed it; "": it was not executed.

    Example:
        >>> broker.get("late", wait=0.01)
        Traceback (most recent call last):
        arraybridge.errors.BrokerTimeout: ...
    """

    def __init__(self, message: str = "", code: int = 0, reason: str = "", request: str = "") -> None:
        super().__init__(message, code, reason)
        self.request = request

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code, self.reason, self.request)


class ChannelClosed(BrokerError, EOFError):
    """The stream has ended in order and was received completely, or the last receiver has closed the channel; or this
    process closed the channel itself. Ends an iteration. Unless it was closed here, the next call waits for the next
    stream, or the next receiver.

    Attributes:
        earlier: the stream had ended before this receiver opened, and nothing of it was left. An iteration that ends so
            warns (RuntimeWarning): the stream may be one of an earlier run.

    Example:
        >>> frames.close()
        >>> frames.send(np.ones(3))
        Traceback (most recent call last):
        arraybridge.errors.ChannelClosed: ...
    """

    def __init__(self, message: str = "", code: int = 0, reason: str = "", earlier: bool = False) -> None:
        super().__init__(message, code, reason)
        self.earlier = earlier

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code, self.reason, self.earlier)


class PeerGone(BrokerError, ConnectionError):
    """A sender of a channel, or its last receiver, is lost: its process ended, or gave its end up. Raised once for
    each; the next call waits for the peers that are left or come back.

    Attributes:
        reason: "SENDER_DIED", "SENDER_ABANDONED", "RECEIVER_DIED" or "RECEIVER_ABANDONED".
        process_id: of the lost process, in the broker's namespace of processes; 0: unknown.
        client: the name of its program.
        shares: how many arrays, or trees, it sent or received.
        missing: arrays that it sent are known to be lost. If False, it may still have had more to send.

    Example:
        >>> try:
        ...     frame = frames.receive(timeout=0)
        ... except arraybridge.PeerGone as lost:
        ...     print(f"{lost.client} (PID {lost.process_id}) ended after {lost.shares} frames")
        ... except arraybridge.BrokerTimeout:
        ...     frame = None
    """

    def __init__(
        self, message: str = "", code: int = 0, reason: str = "", process_id: int = 0, client: str = "",
        shares: int = 0, missing: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(message, code, reason)
        self.process_id = process_id
        self.client = client
        self.shares = shares
        self.missing = missing

    def __reduce__(self) -> tuple[Any, ...]:
        facts = (self.process_id, self.client, self.shares, self.missing)
        return type(self), (self.message, self.code, self.reason, *facts)


class WatchClosed(BrokerError, EOFError):
    """The watch was closed in this process. Ends an iteration.

    Example:
        >>> watch = broker.watch()
        >>> watch.close()
        >>> watch.next()
        Traceback (most recent call last):
        arraybridge.errors.WatchClosed: ...
    """


class EventsLost(BrokerError, BufferError):
    """A watch was read too slowly and has ended; the message has the number of lost events.

    Example:
        >>> watch = broker.watch("publish")
        >>> try:
        ...     event = watch.next(timeout=0)
        ... except arraybridge.EventsLost:    # begin again, and list what was missed
        ...     watch, shares = broker.watch("publish"), broker.list()
        ... except arraybridge.BrokerTimeout:
        ...     pass
    """


class InvalidRequest(BrokerError, ValueError):
    """The broker, or this package before it, refuses the arguments.

    Example:
        >>> broker.channel("frames", capacity=0)
        Traceback (most recent call last):
        arraybridge.errors.InvalidRequest: ...
    """


_BY_CODE: dict[int, type[BrokerError]] = {
    3: InvalidRequest,
    4: BrokerTimeout,
    5: ShareNotFound,
    6: ShareExists,
    7: PermissionDenied,
    8: OutOfMemory,
    14: BrokerUnavailable,
}


_BY_REASON: dict[str, type[BrokerError]] = {
    "CHANNEL_CAPACITY": InvalidRequest,
    "CHANNEL_ENDED": ChannelClosed,
    "CHANNEL_IN_USE": InvalidRequest,
    "CHANNEL_MODE": InvalidRequest,
    "CHANNEL_NOT_FOUND": InvalidRequest,
    "CHANNEL_NOT_OPEN": ChannelClosed,
    "DESCRIPTOR_LIMIT": OutOfDescriptors,
    "NO_RECEIVER": ChannelClosed,
    "RECEIVER_ABANDONED": PeerGone,
    "RECEIVER_DIED": PeerGone,
    "PUBLISH_LOST": BrokerUnavailable,
    "SENDER_ABANDONED": PeerGone,
    "SENDER_DIED": PeerGone,
    "WATCH_CUT": EventsLost,
    "WATCH_NOT_OPEN": WatchClosed,
}


# The remedy of a refusal in the words of this package, which the broker does not know. `tests/python/api/test_messages.py`
# causes each of them.
REMEDIES: dict[str, str] = {
    "BAD_NAME": "a name has 1 to 255 bytes of UTF-8, without control characters",
    "CHANNEL_CAPACITY": "pass this number, or None, as capacity= of Broker.channel",
    "CHANNEL_FULL": "receive from the channel, or pass a larger timeout= or capacity=",
    "CHANNEL_MODE": "pass the channel's mode, on_slow and replay, or None; Channel.drain() removes a channel without open ends",
    "CHANNEL_NOT_FOUND": "send into it first, or check the name and the namespace=",
    "CHANNEL_NOT_OPEN": "make a new one with Broker.channel",
    "DEVICE_TOO_SMALL": "put less at once, or raise the capacity of the broker's memory",
    "DRAINING": "call again when the broker has been started again",
    "NAMESPACE_DENIED": "pass token=, use another namespace=, or let the operator add the user to its access list",
    "NAMESPACE_READ_ONLY": "use another namespace=, or let the operator add the user to its access list",
    "NAME_DID_NOT_COME": "check the name and the namespace= of the process that puts it, or pass a larger wait=",
    "NAME_TAKEN": "pass replace=True to publish its next generation, or another name",
    "QUOTA_EXCEEDED": "withdraw shares, drop arrays that were read from the broker, or raise this limit",
    "QUOTA_TOO_SMALL": "put less at once, or raise this limit",
    "SHARE_GONE": "it was withdrawn or replaced: get its name, which means the newest generation",
    "SHARE_NOT_FOUND": "Broker.list() has the names that exist, and get(wait=seconds) waits for a new one",
    "TOO_LARGE": "pass less, or raise this limit of the broker",
    "TOO_MANY": "pass fewer, or raise this limit of the broker",
    "WATCH_CUT": "make a new one with Broker.watch, and read it faster, or watch fewer kinds= or names=",
    "WATCH_NOT_OPEN": "make a new one with Broker.watch",
}


_NO_DEVICE = frozenset({"DEVICE_NOT_VISIBLE", "CUDA_LIBRARY_ABSENT", "CUDA_FORKED", "CUDA_ERROR_NO_DEVICE"})


def from_status(status: Any) -> BrokerError:
    """The error of a StatusError of the extension, with a remedy if there is one in Python."""
    if status.reason in _NO_DEVICE:
        return DeviceUnavailable("share", "any", "device", status.message)
    found = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, BrokerError)
    message = with_remedy(status.message, REMEDIES.get(status.reason, ""))
    if found is BrokerTimeout:
        return BrokerTimeout(message, status.code, status.reason, status.request)
    if found is PeerGone:
        facts = status.facts
        numbers = int(facts.get("process_id", 0)), facts.get("client", ""), int(facts.get("shares", 0))
        return PeerGone(message, status.code, status.reason, *numbers, facts.get("missing") == "true")
    if found is ChannelClosed:
        return ChannelClosed(message, status.code, status.reason, status.facts.get("earlier") == "true")
    return found(message, status.code, status.reason)


def with_remedy(message: str, remedy: str) -> str:
    """The message with a remedy at its end, once."""
    return message if not remedy or message.endswith(remedy) else f"{message}; {remedy}"


# Names of sides that the function which raises a conversion error does not know.
_UNKNOWN_SIDES = ("array", "any")


def _between(source_type: str, target_type: str) -> str:
    """The beginning of a message about a conversion: names the sides that are known."""
    source = "" if source_type in _UNKNOWN_SIDES else f" from {source_type}"
    target = "" if target_type in _UNKNOWN_SIDES else f" to {target_type}"
    return f"Cannot convert{source}{target}: " if source or target else ""


class MemoryConversionError(BrokerError):
    """An array of `source_type` cannot become one of `target_type`.

    Attributes:
        source_type, target_type: names of the frameworks; "array" or "any": unknown.
        method: the step that failed: detect, device, identity, hand_over, place, asdlpack, scale.
        reason: why, in words.
        names_sides: True if the message begins with the names of both sides.
        remedy: the end of every message of this class.

    Example:
        >>> try:
        ...     arraybridge.convert(np.array(["text"]), "torch")
        ... except arraybridge.MemoryConversionError as error:
        ...     print(error.source_type, error.target_type)
        numpy torch
    """

    names_sides = True  # False: the reason names the object or the word that is wrong
    remedy = ""  # of every error of this class

    def __init__(self, source_type: str, target_type: str, method: str, reason: str) -> None:
        between = _between(str(source_type), str(target_type)) if self.names_sides else ""
        super().__init__(with_remedy(f"{between}{reason}", self.remedy), reason=reason)
        self.source_type = str(source_type)
        self.target_type = str(target_type)
        self.method = method

    def between(self, source_type: str, target_type: str) -> Self:
        """The same error with these names, for callers that know them better than the function that raised it."""
        made = type(self)(source_type, target_type, self.method, self.reason)
        own = {"message": made.message, "source_type": made.source_type, "target_type": made.target_type}
        made.__dict__.update({**self.__dict__, **own})
        made.__cause__ = self.__cause__
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source_type, self.target_type, self.method, self.reason), self.__dict__


class InvalidMemoryType(MemoryConversionError, ValueError):
    """No framework has this name, or this object is unreadable.

    Example:
        >>> arraybridge.convert(np.ones(3), "pytorch")
        Traceback (most recent call last):
        arraybridge.errors.InvalidMemoryType: ...
    """

    names_sides = False


class SourceTypeMismatch(MemoryConversionError, TypeError):
    """The data is not of the type that the caller named.

    Example:
        >>> arraybridge.convert_memory(np.ones(3), "torch", "numpy")
        Traceback (most recent call last):
        arraybridge.errors.SourceTypeMismatch: ...
    """


class FrameworkNotAvailable(MemoryConversionError, ImportError):
    """The target's module cannot be imported or is too old.

    Attributes:
        name: of the module.

    Example:
        >>> arraybridge.ensure_module("absent")
        Traceback (most recent call last):
        arraybridge.errors.FrameworkNotAvailable: ...
    """

    names_sides = False

    def __init__(self, source_type: str, target_type: str, method: str, reason: str, name: str | None = None) -> None:
        super().__init__(source_type, target_type, method, reason)
        self.name = name or self.target_type

    def between(self, source_type: str, target_type: str) -> Self:
        """The same error with these names."""
        made = super().between(source_type, target_type)
        made.name = self.name
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source_type, self.target_type, self.method, self.reason, self.name), self.__dict__


class DeviceUnavailable(MemoryConversionError, RuntimeError):
    """The target has no such device.

    Example:
        >>> arraybridge.convert(np.ones(3), "torch", device="cuda:99")
        Traceback (most recent call last):
        arraybridge.errors.DeviceUnavailable: ...
    """


class InvalidDevice(MemoryConversionError, ValueError):
    """It is not a device: a negative or non-integer ordinal, an unreadable string.

    Example:
        >>> arraybridge.convert(np.ones(3), "torch", device="gpu")
        Traceback (most recent call last):
        arraybridge.errors.InvalidDevice: ...
    """

    names_sides = False


class UnsupportedDtype(MemoryConversionError, TypeError, BufferError):
    """The target has no such dtype, or would silently narrow it.

    Example:
        >>> arraybridge.convert(np.array(["text"]), "torch")
        Traceback (most recent call last):
        arraybridge.errors.UnsupportedDtype: ...
    """


class UnsupportedArray(MemoryConversionError, TypeError, BufferError):
    """An array of this form (masked, sparse, symbolic, deleted, ...) has no memory that can be shared.

    Example:
        >>> broker.put(np.ma.masked_array([1, 2], [0, 1]))
        Traceback (most recent call last):
        arraybridge.errors.UnsupportedArray: ...
    """


class ZeroCopyUnavailable(MemoryConversionError, BufferError, ValueError):
    """A copy was forbidden and is needed.

    Attributes:
        plan: the Plan that a copy would have followed, with the reasons for it; None: not known.

    Example:
        >>> arraybridge.convert(np.arange(6)[::-1], "torch", copy=False)
        Traceback (most recent call last):
        arraybridge.errors.ZeroCopyUnavailable: ...
    """

    remedy = 'a copy is needed: drop copy=False or require="zero-copy" to permit it'

    def __init__(self, source_type: str, target_type: str, method: str, reason: str, plan: Plan | None = None) -> None:
        super().__init__(source_type, target_type, method, reason)
        self.plan = plan


_RESOURCE_EXHAUSTED = 8
_CAUSES_MAX = 16  # length of a chain of exceptions that is followed


def exhausted_by(error: BaseException, what: str) -> BrokerError | None:
    """An error about exhausted memory or descriptors, if that is the cause of `error`, at any place of its chain; else
    None.

    Args:
        what: the failed activity, as the beginning of a message: "put of a numpy array".
    """
    found: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if found is None or isinstance(found, BrokerError):
            return None
        if isinstance(found, MemoryError) or (isinstance(found, OSError) and found.errno == errno.ENOMEM):
            return OutOfMemory(f"{what}: no memory is left: {type(found).__name__}: {found}")
        number = _lacking(found)
        if number:
            return _out_of_descriptors(number, what)
        found = found.__cause__ or found.__context__
    return None


def _lacking(error: BaseException) -> int:
    """EMFILE or ENFILE, if it reports one; else 0. `tempfile` raises FileNotFoundError without an errno."""
    if not isinstance(error, OSError):
        return 0
    if error.errno == errno.ENOENT:
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as probe:
            error = probe
    return error.errno if error.errno in (errno.EMFILE, errno.ENFILE) else 0


def _out_of_descriptors(number: int, what: str) -> OutOfDescriptors:
    limit = "system (fs.file-max): close files, or raise it, as `sysctl fs.file-max` does"
    if number == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        limit = f"process (RLIMIT_NOFILE {most}): close files, or raise it, as `ulimit -n` does"
    text = f"{what}: no file descriptor is left in this {limit}"
    return OutOfDescriptors(text, _RESOURCE_EXHAUSTED, "DESCRIPTOR_LIMIT", number)


def limits_of_process() -> str:
    """The limits of this process that keep a daemon from starting, as the end of a message; "" without any."""
    raised = {"RLIMIT_AS": "-v", "RLIMIT_FSIZE": "-f"}
    found = [(name, resource.getrlimit(getattr(resource, name))[0], flag) for name, flag in raised.items()]
    limits = [
        f"{name} of this process is {most} bytes: raise it, as `ulimit {flag}` does"
        for name, most, flag in found
        if most != resource.RLIM_INFINITY
    ]
    return "".join(f"; {each}" for each in limits)


def raised_by(error: Exception, source_type: str, target_type: str, method: str) -> BrokerError:
    """The BrokerError for a framework's exception: frameworks raise half a dozen builtins, and classes of their own."""
    if isinstance(error, BrokerError):
        return error
    lack = exhausted_by(error, f"{source_type} to {target_type} by {method}")
    return lack or MemoryConversionError(source_type, target_type, method, f"{type(error).__name__}: {error}")


class DeviceFallbackWarning(UserWarning):
    """The data was moved to another device than the requested one.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("ignore", arraybridge.DeviceFallbackWarning)    # or pass gpu_id=None
    """


class CopyWarning(UserWarning):
    """A copy within one kind of memory was needed and was not requested.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("error", arraybridge.CopyWarning)    # no such copy goes unnoticed
    """


autograph.mark_module(__name__)
