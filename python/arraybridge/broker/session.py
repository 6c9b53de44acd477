# SPDX-License-Identifier: Apache-2.0
"""A Session is one process's access to a namespace of a broker: its address, and its end."""

from __future__ import annotations

import os
from typing import Final, Self

from arraybridge import autograph
from arraybridge.arguments import check_text
from arraybridge.broker import discovery
from arraybridge.broker.connection import UNAVAILABLE, Connection
from arraybridge.errors import BrokerUnavailable, InvalidRequest, printable
from arraybridge.notebook.facts import table_of


class Session:
    """A Broker without its verbs; `Broker` documents the arguments. Does not connect until it is used.

    Raises:
        InvalidRequest: an invalid namespace, start, timeout, `direct_channels` or client.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None,
        namespace: str,
        start: discovery.Start,
        timeout_s: float,
        token: str | None = None,
        direct_channels: bool = True,
        client: str | None = None,
    ) -> None:
        if start not in ("auto", "never", "private"):
            raise InvalidRequest(f'start must be "auto", "never" or "private", not {start!r}')
        if start == "private" and address is not None:
            raise InvalidRequest('start="private" starts a new broker: do not pass an address')
        check_text(namespace, "a namespace", empty=False)
        if not isinstance(direct_channels, bool):
            raise InvalidRequest(f"direct_channels must be True or False, not {direct_channels!r}")
        self.namespace: Final = namespace
        self.timeout_s: Final = timeout_s
        self._connection = Connection(address, namespace, start, timeout_s, token, direct_channels, client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        address = self._connection.address
        at = f"at {printable(address)}" if address else "not connected"
        return f"<{type(self).__name__} namespace {self.namespace!r}, {at}>"

    def _repr_html_(self) -> str:
        requested, start = self._connection.requested
        address = self._connection.address
        at = address or ("not connected" if requested is None else f"not connected, to {requested}")
        return table_of(type(self).__name__, [
            ("namespace", self.namespace),
            ("address", at),
            ("start", start),
            ("timeout_s", self.timeout_s),
        ])  # fmt: skip

    def close(self) -> None:
        """Ends the connection, and a private broker. Arrays stay valid; the next call connects again.

        Raises:
            BrokerError: a put with `wait=False` has failed. The connection is closed all the same.
        """
        self._connection.close()

    @property
    def address(self) -> str:
        """The address of the broker: the directory of its sockets. Finds, or starts, it.

        Raises:
            BrokerUnavailable: there is none, and none may or could be started.
        """
        self._connection.core()
        address = self._connection.address
        if address is None:
            raise BrokerUnavailable("another thread closed the connection; call again", code=UNAVAILABLE)
        return address

    @property
    def latest_address(self) -> str | None:
        """The address of the broker, also after `close`; None before the first call. Does not connect."""
        return self._connection.latest_address

    def is_at(self, address: str) -> bool:
        """True if it is connected to the broker at this address."""
        return self._connection.address == address


autograph.mark_module(__name__)
