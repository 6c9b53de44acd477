# SPDX-License-Identifier: Apache-2.0
"""The plugin of Dask's workers: it tells other workers which broker they have, and gives them what they lack."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.broker.replica import broker_of, run_of
from arraybridge.errors import BrokerError
from arraybridge.integrations import dask_peers as peers, dask_share

NAMESPACE: Final = "default"  # any: the run is that of the whole broker
_ELSEWHERE: Final = b""  # the run of no broker: send bytes
_distributed: Any = ensure_module("distributed")
_done: Any = ensure_module("distributed.core").Status.dont_reply
_CLIENTS: Final = "arraybridge_clients"  # an attribute of the handler: runs by the plugin's name
_KNOWN_SECONDS: Final = 10.0
_KNOWN_MAX: Final = 4096
_REQUEST_SECONDS_MAX: Final = 10.0


class Plugin(_distributed.WorkerPlugin):  # type: ignore[misc, unused-ignore]
    """Of one client, whose broker may be that of a worker. A worker without a broker works as before."""

    def __init__(self, client: str, run: bytes) -> None:
        self.name = f"arraybridge-{client}"
        self._run = run

    def setup(self, worker: Any) -> None:
        clients: dict[str, bytes] | None = getattr(worker.handlers["get_data"], _CLIENTS, None)
        if clients is None:
            clients = {}
            worker.handlers["get_data"] = _telling(worker, clients)
            worker.handlers[peers.PULL], worker.handlers[peers.BROKER] = _pull, _broker
            peers.serve(worker)
        clients[self.name] = self._run

    def teardown(self, worker: Any) -> None:
        getattr(worker.handlers["get_data"], _CLIENTS, {}).pop(self.name, None)


def here() -> tuple[str, bytes]:
    """The address and the run of this process's broker.

    Raises:
        BrokerUnavailable: there is none.
    """
    broker = broker_of(NAMESPACE)
    return broker.address, run_of(broker)


async def _broker() -> dict[str, Any]:
    """The handler of `peers.BROKER`."""
    try:
        return {"run": (await asyncio.to_thread(here))[1]}
    except BrokerError:
        return {"run": _ELSEWHERE}


class _ForRun:
    """A connection whose messages are for the broker of a run."""

    def __init__(self, comm: Any, run: bytes) -> None:
        self._comm, self._run = comm, run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    async def write(self, *message: Any, **options: Any) -> Any:
        # Only here: meanwhile Dask may write other objects to its disk.
        token = peers.recipient.set(self._run)
        try:
            return await self._comm.write(*message, **options)
        finally:
            peers.recipient.reset(token)


async def _pull(comm: Any, origin: tuple[bytes, str, int]) -> Any:
    """The handler of `peers.PULL`: the Share with its bytes."""
    share = dask_share.held_here(origin)
    answer = {"status": "gone"} if share is None else {"status": "OK", "share": _distributed.protocol.to_serialize(share)}
    await _ForRun(comm, _ELSEWHERE).write(answer)
    return _done


def _telling(worker: Any, clients: dict[str, bytes]) -> Callable[..., Awaitable[Any]]:
    """The handler `get_data`, which tells `dump` which broker reads what it sends.

    A request by `who`, another worker, is for its broker. Any other one comes from the scheduler, which passes the answer
    to a client: it is for the broker of the clients, if all have the same.
    """
    get_data = worker.handlers["get_data"]
    known: dict[str, tuple[float, bytes]] = {}  # by worker: when it was asked, the run of its broker

    async def run_of(who: str) -> bytes:
        requested_at, run = known.get(who, (-math.inf, _ELSEWHERE))
        if time.monotonic() - requested_at > _KNOWN_SECONDS:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                answer = await asyncio.wait_for(getattr(worker.rpc(who), peers.BROKER)(), _REQUEST_SECONDS_MAX)
                run = bytes(answer["run"]) if isinstance(answer, dict) else _ELSEWHERE
            if len(known) >= _KNOWN_MAX:
                known.clear()
            known[who] = time.monotonic(), run
        return run

    @functools.wraps(get_data)
    async def telling(comm: Any, keys: Any, who: str | None = None, **others: Any) -> Any:
        run = _ELSEWHERE
        if who is not None and dask_share.holds_any():
            run = await run_of(who)
        elif who is None and len(set(clients.values())) == 1:
            run = next(iter(clients.values()))
        return await get_data(_ForRun(comm, run), keys, who=who, **others)

    setattr(telling, _CLIENTS, clients)
    return telling


autograph.mark_module(__name__)
