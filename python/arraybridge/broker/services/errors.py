# SPDX-License-Identifier: Apache-2.0
"""The errors of a call: the server is gone, or has no result."""

from __future__ import annotations

from typing import Any

from arraybridge.errors import BrokerError

_UNAVAILABLE = 14
_UNKNOWN = 2


class ServerGone(BrokerError, ConnectionError):
    """The server of a service ended with the request in its hands: it has executed it, in part, or not at all. No other server
    gets it, unless the service states `retry=True`.

    Attributes:
        process_id: of the server, in the broker's namespace of processes; 0: unknown.
        client: the name of its program.

    Example:
        >>> try:
        ...     boxes = broker.call("detect", np.ones(3), timeout=0.01)
        ... except arraybridge.ServerGone as gone:
        ...     print(f"{gone.client} (PID {gone.process_id}) ended")
        ... except arraybridge.BrokerTimeout:
        ...     boxes = None
    """

    def __init__(self, message: str = "", process_id: int = 0, client: str = "") -> None:
        super().__init__(message, _UNAVAILABLE, "SERVER_GONE")
        self.process_id = process_id
        self.client = client

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message, self.process_id, self.client)


class RequestFailed(BrokerError, RuntimeError):
    """The server of a service has no result: it called `Request.fail`, which says why, or went on without an answer.

    Example:
        >>> try:
        ...     boxes = broker.call("detect", np.ones(3), timeout=0.01)
        ... except arraybridge.RequestFailed as failed:
        ...     print(failed.message)
        ... except arraybridge.BrokerTimeout:
        ...     boxes = None
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message, _UNKNOWN, "REQUEST_FAILED")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,)
