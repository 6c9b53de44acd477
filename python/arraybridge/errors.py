"""What can go wrong, as classes: every error is a BrokerError *and* the builtin that a user would guess.

Errors of the broker carry gRPC's status code in `.code`; errors of conversions say source, target, step and reason.
All of them pickle, so that they cross a multiprocessing pool as themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

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


class BrokerError(Exception):
    """The root of all errors of this package.

    Attributes:
        code: the gRPC status code of a broker's answer, 0 for errors that no broker reported.
        reason: a short machine-readable word of the broker, or the reason of a conversion error.
    """

    def __init__(self, message: str = "", code: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason

    def __str__(self) -> str:
        # KeyError would print the quoted message, and OSError has a format of its own.
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.code, self.reason)


class ShareNotFound(BrokerError, KeyError):
    """No share has this name, id or generation (any more)."""


class ShareExists(BrokerError, ValueError):
    """The name is taken; `replace=True` publishes the next generation."""


class OutOfMemory(BrokerError, MemoryError):
    """The broker had no room before the deadline; the message names the quota and its numbers."""


class PermissionDenied(BrokerError, PermissionError):
    """The namespace's access list refuses this process."""


class BrokerUnavailable(BrokerError, ConnectionError):
    """No broker answers, and none may or could be started."""


class BrokerTimeout(BrokerError, TimeoutError):
    """The deadline passed before the broker could answer."""


class ChannelClosed(BrokerError, EOFError):
    """The stream has ended, all of it was received; or this process closed the channel itself. Ends an iteration."""


class PeerGone(BrokerError, ConnectionError):
    """Somebody at the other end of a channel went: a sender without closing, so that something may be missing, or the
    last receiver, so that nobody takes what is sent."""


class WatchClosed(BrokerError, EOFError):
    """The watch was closed in this process. Ends an iteration."""


class EventsLost(BrokerError, BufferError):
    """A watch was read too slowly and has ended; the message says how many events it lost."""


class InvalidRequest(BrokerError, ValueError):
    """The broker, or this package before it, refuses the arguments."""


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
    "CHANNEL_NOT_OPEN": ChannelClosed,
    "NO_RECEIVER": PeerGone,
    "PUBLISH_LOST": BrokerUnavailable,
    "SENDER_DIED": PeerGone,
    "WATCH_CUT": EventsLost,
    "WATCH_NOT_OPEN": WatchClosed,
}


_NO_DEVICE = frozenset({"DEVICE_NOT_VISIBLE", "CUDA_LIBRARY_ABSENT", "CUDA_FORKED", "CUDA_ERROR_NO_DEVICE"})


def from_status(status: Any) -> BrokerError:
    """The error class of a StatusError of the extension."""
    if status.reason in _NO_DEVICE:
        return DeviceUnavailable("share", "any", "device", status.message)
    found = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, BrokerError)
    return found(status.message, status.code, status.reason)


class MemoryConversionError(BrokerError):
    """An array of `source_type` cannot become one of `target_type`.

    Attributes:
        source_type, target_type: names of the memory types.
        method: the step that failed: detect, device, identity, hand_over, place, asdlpack, scale.
        reason: why, in words.
    """

    def __init__(self, source_type: str, target_type: str, method: str, reason: str) -> None:
        super().__init__(
            f"Cannot convert from {source_type} to {target_type} using {method}. Reason: {reason}", reason=reason
        )
        self.source_type = str(source_type)
        self.target_type = str(target_type)
        self.method = method

    def between(self, source_type: str, target_type: str) -> Self:
        """The same error of these two: who raises it does not always know what it is asked for."""
        made = type(self)(source_type, target_type, self.method, self.reason)
        own = {"message": made.message, "source_type": made.source_type, "target_type": made.target_type}
        made.__dict__.update({**self.__dict__, **own})
        made.__cause__ = self.__cause__
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source_type, self.target_type, self.method, self.reason), self.__dict__


class InvalidMemoryType(MemoryConversionError, ValueError):
    """No memory type has this name, or nothing here can read this object."""


class SourceTypeMismatch(MemoryConversionError, TypeError):
    """The data is not of the type that the caller named."""


class FrameworkNotAvailable(MemoryConversionError, ImportError):
    """The target's module cannot be imported or is too old; `.name` is the module."""

    def __init__(
        self, source_type: str, target_type: str, method: str, reason: str, name: str | None = None
    ) -> None:
        super().__init__(source_type, target_type, method, reason)
        self.name = name or self.target_type

    def between(self, source_type: str, target_type: str) -> Self:
        made = super().between(source_type, target_type)
        made.name = self.name
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source_type, self.target_type, self.method, self.reason, self.name), self.__dict__


class DeviceUnavailable(MemoryConversionError, RuntimeError):
    """The target has no such device."""


class InvalidDevice(MemoryConversionError, ValueError):
    """This is no device: a negative or non-integer ordinal, an unreadable string."""


class UnsupportedDtype(MemoryConversionError, TypeError, BufferError):
    """The target has no such dtype, or would silently narrow it."""


class UnsupportedArray(MemoryConversionError, TypeError, BufferError):
    """An array of this form (masked, sparse, symbolic, deleted, ...) has no memory that can be handed on."""


class ZeroCopyUnavailable(MemoryConversionError, BufferError, ValueError):
    """A copy was forbidden and is needed; `.plan` holds the reasons."""

    def __init__(
        self, source_type: str, target_type: str, method: str, reason: str, plan: Plan | None = None
    ) -> None:
        super().__init__(source_type, target_type, method, reason)
        self.plan = plan


def raised_by(error: Exception, source_type: str, target_type: str, method: str) -> BrokerError:
    """What a framework's own exception becomes: they raise half a dozen builtins, and classes that are none of them."""
    if isinstance(error, BrokerError):
        return error
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        return OutOfMemory(f"{source_type} to {target_type} by {method}: {text}")
    return MemoryConversionError(source_type, target_type, method, text)


class DeviceFallbackWarning(UserWarning):
    """The data went to another device than the one asked for."""


class CopyWarning(UserWarning):
    """A copy was needed within one kind of memory and nobody asked for it."""
