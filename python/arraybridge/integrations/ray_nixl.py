# SPDX-License-Identifier: Apache-2.0
"""NIXL as the mover between nodes: it reads the memory of one broker into that of another, by RDMA where there is some.

Written against NIXL 1.5. Without RDMA it uses TCP, and is slower than Ray's object store.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.errors import BrokerUnavailable

_LENT_S: Final = 600.0  # memory that a reader has not given back is not lent any more
_SLOWEST_BYTES_S: Final = 10 << 20  # a transfer that is slower, after a minute, has failed


class Lent(NamedTuple):
    """Memory that another process may read: the agent and the places."""

    agent: bytes
    places: bytes


class Mover:
    """The NIXL agent of a process. Thread-safe.

    Raises:
        FrameworkNotAvailable: NIXL is not installed.
    """

    def __init__(self) -> None:
        api: Any = ensure_module("nixl._api")
        self._agent = api.nixl_agent(uuid.uuid4().hex, api.nixl_agent_config(backends=["UCX"]))
        self._lock = threading.Lock()
        self._lent: dict[str, tuple[float, Any, Any]] = {}  # by ticket: when, the registration, what keeps the memory

    def lend(self, ticket: str, parts: Sequence[Any]) -> Lent:
        """Permits other agents to read these arrays until `end`, or for _LENT_S."""
        with self._lock:
            for late in [each for each, (when, _, _) in self._lent.items() if when < time.monotonic() - _LENT_S]:
                self._end(late)
            registration = self._agent.register_memory([(*place, "") for place in _places(parts)], "DRAM")
            self._lent[ticket] = time.monotonic(), registration, parts
            places = self._agent.get_xfer_descs(_places(parts), "DRAM")
            return Lent(self._agent.get_agent_metadata(), self._agent.get_serialized_descs(places))

    def end(self, ticket: str) -> None:
        """Ends a `lend`; a second time is no error."""
        with self._lock:
            if ticket in self._lent:
                self._end(ticket)

    def read(self, lent: Lent, destinations: Sequence[Any]) -> None:
        """Fills arrays with what is lent, one after another of the same sizes.

        Raises:
            BrokerUnavailable: NIXL failed, or the other process has ended.
        """
        size = sum(each.nbytes for each in destinations)
        try:
            self._read(lent, destinations, time.monotonic() + 60 + size / _SLOWEST_BYTES_S)
        except Exception as error:  # NIXL's classes have no common one
            raise BrokerUnavailable(
                f"NIXL could not move {size} bytes: {error}; call again, or unset $ARRAYBRIDGE_MOVER on all nodes", code=14
            ) from error

    def _read(self, lent: Lent, destinations: Sequence[Any], deadline: float) -> None:
        agent, registration, peer, transfer = self._agent, None, None, None
        try:
            with self._lock:
                registration = agent.register_memory([(*place, "") for place in _places(destinations)], "DRAM")
                peer = agent.add_remote_agent(lent.agent)
                local = agent.get_xfer_descs(_places(destinations), "DRAM")
                transfer = agent.initialize_xfer("READ", local, agent.deserialize_descs(lent.places), peer)
                state = agent.transfer(transfer)
            while state == "PROC" and time.monotonic() < deadline:
                time.sleep(0.0005)
                with self._lock:
                    state = agent.check_xfer_state(transfer)
            if state != "DONE":
                raise RuntimeError("it took too long" if state == "PROC" else f"the transfer ended as {state}")
        finally:
            with self._lock:
                if transfer is not None:
                    agent.release_xfer_handle(transfer)
                if registration is not None:
                    agent.deregister_memory(registration)

    def _end(self, ticket: str) -> None:
        _, registration, _ = self._lent.pop(ticket)
        self._agent.deregister_memory(registration)


def _places(arrays: Sequence[Any]) -> list[tuple[int, int, int]]:
    return [(each.__array_interface__["data"][0], each.nbytes, 0) for each in arrays if each.nbytes]


autograph.mark_module(__name__)
