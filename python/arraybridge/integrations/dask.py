# SPDX-License-Identifier: Apache-2.0
"""Dask: results of tasks that all workers of a host map without a copy, and that are moved to other hosts as Dask moves data.

Dask schedules, counts references and moves bytes between hosts; the broker of each host has the arrays. Written against
distributed 2026.8.

    import arraybridge.integrations.dask as abd
    abd.start(client)                              # once per client: its workers, also later ones, learn of the brokers
    share = client.submit(lambda: abd.put(np.ones(1 << 24)))
    client.submit(lambda share: share.get("torch").sum().item(), share)

A process finds the broker of its host as `arraybridge.Broker()` does; without one it starts one. arraybridge must be
installed where the scheduler runs, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arraybridge import autograph
from arraybridge.adapters import ensure_module
from arraybridge.arrays.devices import HOST, named
from arraybridge.broker.broker import Broker
from arraybridge.broker.bundle import Bundle
from arraybridge.broker.replica import broker_of, forward_of, published, run_of
from arraybridge.broker.share import Share as LocalShare, record_of
from arraybridge.errors import BrokerUnavailable, UnsupportedArray
from arraybridge.integrations import dask_peers as peers

if TYPE_CHECKING:
    from arraybridge.integrations.dask_share import Share


def __getattr__(name: str) -> Any:
    # The module of Share imports distributed. It is imported with the first Share, so that Dask's tables know the class
    # then, in whatever order a process imports this module and distributed.
    if name == "Share":
        return _module("dask_share").Share
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def put(array: Any, *, broker: Broker | None = None, metadata: bytes | None = None) -> Share:
    """Publishes an array, a tree of arrays or a bundle in this host's broker, for Dask. Return it from a task, or scatter it.

    Args:
        array: as in `Broker.put`: copied once; an array that was born in broker memory (`empty`) is not copied and must not
            be written any more. Or a Bundle, or a filled BundleWriter, which are not copied.
        broker: None: `Broker()`. Workers of one host share what they get from one another if it is the one that they find.
        metadata: bytes of your own.

    Raises:
        FrameworkNotAvailable: distributed is not installed, or older than 2026.8.
        BrokerUnavailable: this host has no broker, and none may be started. UnsupportedArray: it lies on a GPU. Other errors of
            `Broker.put`.

    Example:
        >>> future = client.submit(abd.put, np.ones((2, 3)))
        >>> client.submit(lambda share: share.get("torch").sum().item(), future).result()
        6.0
    """
    module = _module("dask_share")
    if isinstance(array, Bundle) and metadata is None:
        return share_of(array.share)
    share = published(broker or broker_of("default"), array, metadata)
    return _owned(module, share) if share.unnamed else share_of(share)


def empty(shape: int | Sequence[int], dtype: Any, framework: str = "numpy", *, broker: Broker | None = None) -> Any:
    """A writable array in the memory of this host's broker, as `Broker.empty`: `put` publishes it without a copy."""
    return (broker or broker_of("default")).empty(shape, dtype, framework)


def share_of(share: LocalShare) -> Share:
    """The same bytes as an object of Dask, without a copy. The given share stays as it is.

    Raises:
        ShareNotFound: it has ended.
    """
    return _owned(_module("dask_share"), forward_of(share))


def register() -> None:
    """Registers Share with Dask's serialization and `sizeof`. The first Share of a process does it, too.

    Raises:
        FrameworkNotAvailable: distributed is not installed, or older than 2026.8.
    """
    _module("dask_share")


def start(client: Any) -> dict[str, str]:
    """Lets all workers of a cluster, also those that come later, pass references to each other where they have one broker.

    Without it the bytes travel each time. Every client calls it; again is no error. Await it for an asynchronous client.

    Returns:
        The broker's address of each worker, by the worker's.

    Raises:
        BrokerUnavailable: this process has no broker, or a worker has none, and none may be started.
        FrameworkNotAvailable: distributed is not installed, or older than 2026.8.
    """
    register()
    run = run_of(broker_of("default"))
    started: dict[str, str] = client.sync(_started, client, run)
    return started


async def _started(client: Any, run: bytes) -> dict[str, str]:
    module = _module("dask_worker")
    await client.register_plugin(module.Plugin(client.id, run))
    found: dict[str, str] = {}
    for worker, answer in (await client.run(module.here, on_error="return")).items():
        if isinstance(answer, Exception):
            raise BrokerUnavailable(f"worker {worker} has no broker: {answer}", code=14) from answer
        found[worker], peers.runs[worker] = answer
    return found


def _owned(module: Any, share: LocalShare) -> Share:
    if share.device != HOST:
        if share.unnamed:
            share.withdraw()
        raise UnsupportedArray("share", "Dask", "place", f"it lies on {named(share.device)}: Dask moves arrays of host memory")
    record = record_of(share)
    owned: Share = module.Share(module.Ticket(record, (record.broker_id, record.namespace, record.id), ""), share)
    return owned


def _module(name: str) -> Any:
    """A module beside this one that imports distributed."""
    ensure_module("distributed", (2026, 8))
    return ensure_module(f"arraybridge.integrations.{name}")


autograph.mark_module(__name__)
