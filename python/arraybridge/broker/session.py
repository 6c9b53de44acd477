"""A Session is one process's way to a namespace of a broker: where it is, and how it ends."""

from __future__ import annotations

import os
from typing import Final, Self

from arraybridge import autograph
from arraybridge.arguments import check_text
from arraybridge.broker import discovery
from arraybridge.broker.connection import UNAVAILABLE, Connection
from arraybridge.errors import BrokerUnavailable, InvalidRequest


class Session:
    """What a Broker is without its verbs; `Broker` says the arguments. Connects nowhere before it is asked for something.

    Raises:
        InvalidRequest: a namespace, a start, a timeout or `direct_channels` that cannot be.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None,
        namespace: str,
        start: discovery.Start,
        timeout_s: float,
        token: str | None = None,
        direct_channels: bool = True,
    ) -> None:
        if start not in ("auto", "never", "private"):
            raise InvalidRequest(f'start is "auto", "never" or "private", not {start!r}')
        if start == "private" and address is not None:
            raise InvalidRequest("a private broker has no address of somebody else's choice")
        if not isinstance(namespace, str) or not namespace:
            raise InvalidRequest(f"a namespace is a non-empty str, not {namespace!r}")
        check_text(namespace, "a namespace")
        if not isinstance(direct_channels, bool):
            raise InvalidRequest(f"direct_channels is True or False, not {direct_channels!r}")
        self.namespace: Final = namespace
        self.timeout_s: Final = timeout_s
        self._connection = Connection(address, namespace, start, timeout_s, token, direct_channels)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        address = self._connection.address
        at = f"at {address}" if address else "not connected"
        return f"<{type(self).__name__} namespace {self.namespace!r}, {at}>"

    def close(self) -> None:
        """Ends the connection, and a private broker. Arrays stay valid; the next call connects again.

        Raises:
            BrokerError: something that was put with `wait=False` is not there. The connection has ended all the same.
        """
        self._connection.close()

    @property
    def address(self) -> str:
        """Where the broker is: the directory of its sockets. Finds, or starts, it.

        Raises:
            BrokerUnavailable: none is there, and none may or could be started.
        """
        self._connection.core()
        address = self._connection.address
        if address is None:
            raise BrokerUnavailable("the connection was closed meanwhile", code=UNAVAILABLE)
        return address

    @property
    def latest_address(self) -> str | None:
        """Where the broker is, or was before `close`; None before the first call. Connects nowhere."""
        return self._connection.latest_address

    def is_at(self, address: str) -> bool:
        """Whether it is connected to the broker at this address."""
        return self._connection.address == address


autograph.mark_module(__name__)
