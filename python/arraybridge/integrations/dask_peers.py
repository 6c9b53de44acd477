# SPDX-License-Identifier: Apache-2.0
"""The processes of a Dask cluster that this process knows: its own workers, the brokers of others, and how to ask them."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, Final

from arraybridge.adapters import ensure_module
from arraybridge.broker.fork_lock import lock_of
from arraybridge.errors import BrokerUnavailable

PULL: Final = "arraybridge_pull"  # operations of workers
BROKER: Final = "arraybridge_broker"
_PULL_SECONDS_MAX: Final = 600.0
_UNAVAILABLE: Final = 14
WAY: Final = "pass a future to tasks (client.scatter(share), or the future of the task that made it), and keep it until they are done"

# The run of the broker of the process that gets the message which is being written; b"": none that is known. None: look in
# `runs`.
recipient: ContextVar[bytes | None] = ContextVar("arraybridge_recipient", default=None)
runs: dict[str, bytes] = {}  # addresses of workers and the runs of their brokers, as `start` found them

_workers: weakref.WeakSet[Any] = weakref.WeakSet()  # of this process
_lock = lock_of(globals(), threading.Lock)


def serve(worker: Any) -> None:
    """Registers a worker of this process."""
    with _lock:
        _workers.add(worker)


def is_own(address: str) -> bool:
    """True if this is the address of a worker of this process."""
    with _lock:
        return any(worker.address == address for worker in _workers)


def own_worker() -> Any:
    """A worker of this process that others can ask; None: there is none, or `start` was not called."""
    with _lock:
        return next(iter(_workers), None)


def in_worker() -> bool:
    """True if Dask runs a worker in this process."""
    kind: Any = ensure_module("distributed").Worker
    return own_worker() is not None or bool(getattr(kind, "_instances", ()))


def reads(run: bytes, context: dict[str, Any] | None) -> bool:
    """True if the recipient of a message is known to have the broker of this run. `context`: as Dask's serialization gives it;
    None for a file.
    """
    if not context:
        return False
    known = recipient.get()
    if known is None:
        known = runs.get(context.get("recipient", {}).get("address", ""), b"")
    return known == run


def pulled(address: str, origin: tuple[bytes, str, int], name: str) -> Any:
    """The Share that a worker has, loaded here from its bytes. Waits.

    Raises:
        BrokerUnavailable: the worker is gone, does not have it any more, or has no plugin.
    """
    what = f"share {name!r} is in another broker than this host's"
    if not address or is_own(address):
        raise BrokerUnavailable(f"{what}, and no worker is known to have it: {WAY}", code=_UNAVAILABLE)
    try:
        answer = _finished(lambda: _requested(address, origin))
    except (TimeoutError, OSError) as error:
        raise BrokerUnavailable(f"{what}, and worker {address} does not answer ({error}): {WAY}", code=_UNAVAILABLE) from error
    if not isinstance(answer, dict):
        reason = f"worker {address} does not know arraybridge: call arraybridge.integrations.dask.start(client)"
        raise BrokerUnavailable(f"{what}, and {reason}", code=_UNAVAILABLE)
    if answer.get("status") != "OK":
        raise BrokerUnavailable(f"{what}, and worker {address} does not have it any more: {WAY}", code=_UNAVAILABLE)
    return answer["share"]


async def _requested(address: str, origin: tuple[bytes, str, int]) -> Any:
    distributed: Any = ensure_module("distributed")
    worker = own_worker()
    if worker is not None:
        async with distributed.rpc(address, connection_args=worker.connection_args) as remote:
            return await getattr(remote, PULL)(origin=origin)
    # A client may reach the scheduler alone, which passes the bytes on unread.
    try:
        client = distributed.default_client()
    except ValueError as error:
        raise OSError("this process is neither a worker with arraybridge's plugin nor a client") from error
    async with distributed.rpc(client.scheduler.address, connection_args=client.connection_args) as scheduler:
        answers = await scheduler.broadcast(msg={"op": PULL, "origin": origin}, workers=[address])
    return answers[address]


def _finished(start: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The result of a coroutine, in a thread and an event loop of its own: this may be the thread of Dask's."""

    async def limited() -> Any:
        return await asyncio.wait_for(start(), _PULL_SECONDS_MAX)

    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(asyncio.run(limited()))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="arraybridge-dask-pull", daemon=True).start()
    return done.result()
