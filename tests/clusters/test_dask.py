# SPDX-License-Identifier: Apache-2.0
"""Dask over brokers: real workers in processes of their own, two of them at one broker and two at another."""

from __future__ import annotations

import concurrent.futures
import contextlib
import copy
import gc
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

distributed = pytest.importorskip("distributed")

import arrow_table
import dask_tasks as tasks
from dask_tasks import NBYTES, SIZE, until
from hosts import hosts, why_not
from processes import environment, start_daemon, stop_daemon

import arraybridge
import arraybridge.integrations.dask as abd
from arraybridge.broker import replica
from arraybridge.errors import BrokerUnavailable, FrameworkNotAvailable, InvalidRequest, ShareNotFound
from arraybridge.integrations import dask_peers, dask_share


class Cluster:
    """A scheduler and a client in this process, at broker "a"; workers a1 and a2 at broker "a", b1 and b2 at broker "b"."""

    def __init__(self, client: Any, brokers: dict[str, arraybridge.Broker]) -> None:
        self.client, self.brokers = client, brokers
        self.workers: dict[str, str] = {}
        self.find()

    @property
    def scheduler(self) -> str:
        return str(self.client.scheduler.address)

    def find(self, *names: str) -> None:
        """Waits for workers of these names."""
        until(lambda: self.found() >= {"a1", "a2", "b1", "b2", *names})

    def on(self, worker: str, task: Any, *arguments: Any) -> Any:
        """The future of a task."""
        return self.client.submit(task, *arguments, workers=[self.workers[worker]], pure=False)

    def shares(self, broker: str) -> int:
        return int(self.brokers[broker].stats()["shares"])

    def sent(self, *workers: str) -> list[int]:
        """The bytes that accompanied each Share that these workers sent."""
        answers = self.client.run(tasks.sent, workers=[self.workers[name] for name in workers])
        return [size for sizes in answers.values() for size in sizes]

    def found(self) -> set[str]:
        """The names of the workers that there are."""
        found = self.client.scheduler_info()["workers"]
        self.workers = {str(each["name"]): address for address, each in found.items()}
        return set(self.workers)


def assert_refused(future: Any, kind: type[Exception], pattern: str) -> None:
    # An exception that is raised here would keep the frames of the test, and its objects, for as long as Dask keeps it.
    error = future.exception()
    assert isinstance(error, kind), error
    assert re.search(pattern, str(error)), error


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with contextlib.ExitStack() as end:
        # A killed worker's shares end after a second.
        addresses = {name: end.enter_context(tempfile.TemporaryDirectory(prefix=f"ab-{name}-")) for name in "ab"}
        for address in addresses.values():
            daemon = start_daemon(address, "--log-level", "warn", "--orphan-grace", "1s")
            end.callback(stop_daemon, daemon)
        patch = end.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("ARRAYBRIDGE_ADDRESS", addresses["a"])
        # Replicas stay where they are read, until a test runs the memory manager.
        end.enter_context(distributed.dask.config.set({"distributed.scheduler.active-memory-manager.start": False}))
        workers = {
            name: {"cls": distributed.Nanny, "options": {"nthreads": 1, "env": {"ARRAYBRIDGE_ADDRESS": addresses[name[0]]}}}
            for name in ("a1", "a2", "b1", "b2")
        }
        scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "port": 0, "host": "127.0.0.1"}}
        made = end.enter_context(distributed.SpecCluster(workers, scheduler, silence_logs=False))
        client = end.enter_context(distributed.Client(made))
        brokers = {name: end.enter_context(arraybridge.Broker(address, start="never")) for name, address in addresses.items()}
        abd.start(client)
        yield Cluster(client, brokers)


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    """When a test has dropped its objects, the brokers have no shares and no leases."""
    cluster.client.run(tasks.counting)
    yield
    gc.collect()  # Dask's tasks are in cycles

    for broker in cluster.brokers.values():
        deadline, attempt = time.monotonic() + 90, 0  # a test that failed keeps its objects
        while True:
            attempt += 1
            if attempt % 50 == 49:
                cluster.client.run(gc.collect)
            broker.flush()
            stats = broker.stats()
            left = stats["shares"], stats["leases"]
            if left == (0, 0) or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        assert left == (0, 0), [(each.share, each.maker_process_id) for each in broker.list()]


@pytest.fixture
def extra(cluster: Cluster) -> Iterator[subprocess.Popen[bytes]]:
    """One more worker, "extra", at broker "a", which a test may end."""
    until(lambda: "extra" not in cluster.found())  # that of the test before, which was killed
    with tasks.worker(cluster.scheduler, cluster.brokers["a"].address, "extra") as process:
        cluster.find("extra")
        assert cluster.on("extra", tasks.made).result().nbytes == NBYTES
        yield process


def test_start_tells_the_brokers_of_the_workers(cluster: Cluster) -> None:
    found = abd.start(cluster.client)
    assert {name: found[address] for name, address in cluster.workers.items()} == {
        name: cluster.brokers[name[0]].address for name in ("a1", "a2", "b1", "b2")
    }


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_workers_of_one_host_map_the_same_bytes(cluster: Cluster, framework: str) -> None:
    pytest.importorskip(framework)
    share = cluster.on("a1", tasks.made)
    first = cluster.on("a1", tasks.seen, share).result()
    second = cluster.on("a2", tasks.seen, share, framework).result()
    assert (first[0], second[0]) == (SIZE, SIZE) and first[1] != second[1], "two processes"
    assert first[2].inode == second[2].inode
    if framework != "torch":  # it maps the bytes copy-on-write, so that its offset is another mapping's
        assert first[2] == second[2]
    assert cluster.sent("a1") == [0], "one ticket, no bytes"
    assert cluster.shares("a") == 2, "each worker has one of its own"
    assert len({each.share.id for each in cluster.brokers["a"].list()}) == 2
    assert cluster.brokers["a"].stats()["forwards_total"] > 0


def test_an_array_that_was_born_in_the_broker_is_not_copied(cluster: Cluster) -> None:
    pair = cluster.on("a1", tasks.born)
    share = cluster.on("a1", tasks.first_of, pair)
    place = cluster.on("a2", tasks.seen, share).result()[2]
    assert place == pair.result()[1]


def test_a_client_of_the_same_host_gets_a_reference(cluster: Cluster) -> None:
    future = cluster.on("a1", tasks.made)
    place = cluster.on("a1", tasks.seen, future).result()[2]
    share = future.result()
    assert share.held and cluster.sent("a1") == [0]
    del future
    until(lambda: cluster.shares("a") == 1)  # Dask's object is gone, and this one keeps the bytes
    array = share.get()
    assert tasks.place_of(array.ctypes.data) == place and array.sum() == SIZE
    assert "float32 (65536,)" in repr(share) and share.nbytes == NBYTES
    del share
    until(lambda: cluster.shares("a") == 0)
    assert array.sum() == SIZE, "an array outlives its share"


def test_another_host_gets_the_bytes_once(cluster: Cluster) -> None:
    share = cluster.on("a1", tasks.made)
    distributed.wait(share)
    readers = [cluster.on(name, tasks.seen, share) for name in ("b1", "b2")]
    (one, two) = cluster.client.gather(readers)
    assert one[0] == two[0] == SIZE and one[1] != two[1]
    assert one[2] == two[2], "one copy for both"
    assert NBYTES in cluster.sent("a1", "b1", "b2")
    del readers
    again = cluster.on("b2", tasks.total, cluster.on("b1", tasks.same, share))
    assert again.result() == SIZE


def test_trees_and_bundles(cluster: Cluster) -> None:
    for maker, reader in ((tasks.tree, tasks.seen_tree), (tasks.bundle, tasks.seen_bundle)):
        share = cluster.on("a1", maker)
        answers = [cluster.on(name, reader, share).result() for name in ("a1", "a2", "b1")]
        assert answers[0] == answers[1] == answers[2]
    assert answers[0] == (["b", "w"], 32.0, 0.0)
    tree = cluster.on("b1", tasks.tree)
    assert cluster.on("a1", tasks.seen_tree, tree).result()[:5] == (64.0, [0, 1, 2], 0, "tree", b"mine")


def test_tables(cluster: Cluster) -> None:
    share = cluster.on("a1", tasks.table)
    for name in ("a1", "a2", "b1"):
        assert cluster.on(name, tasks.seen_table, share).result() == arrow_table.EXPECTED


def test_put_takes_bundles_of_the_client(cluster: Cluster) -> None:
    broker = cluster.brokers["a"]
    named = broker.bundle("kept", {"w": np.ones(4)}).fill().publish()
    shares = [abd.put(broker.open("kept"), broker=broker), abd.put(broker.bundle(None, {"w": np.ones(4)}).fill(), broker=broker)]
    shares.append(abd.put(shares[1].open()))
    assert [share.open().numpy()["w"].sum() for share in shares] == [4, 4, 4]
    with pytest.raises(InvalidRequest, match="Broker.bundle"):
        abd.put(broker.open("kept"), metadata=b"mine")
    assert cluster.shares("a") == 4
    named.withdraw()
    assert shares[0].open().numpy()["w"].sum() == 4


@pytest.mark.parametrize("direct", [True, False])
def test_a_scattered_share_lives_as_long_as_its_future(cluster: Cluster, direct: bool) -> None:
    for worker in ("a1", "b1"):
        future = cluster.client.scatter(abd.put(np.ones(SIZE, "f4")), direct=direct, workers=[cluster.workers[worker]])
        gc.collect()
        assert cluster.client.submit(tasks.total, future, workers=[cluster.workers[worker]]).result() == SIZE


def test_a_replica_survives_the_retirement_of_its_producer(cluster: Cluster, extra: subprocess.Popen[bytes]) -> None:
    share = cluster.on("extra", tasks.made)
    assert [cluster.on(name, tasks.total, share).result() for name in ("a2", "b1")] == [SIZE, SIZE]
    cluster.client.retire_workers([cluster.workers["extra"]], close_workers=True)
    assert extra.wait() == 0
    assert [cluster.on(name, tasks.total, share).result() for name in ("a2", "b1", "a1")] == [SIZE] * 3


def test_a_share_inside_another_result(cluster: Cluster, extra: subprocess.Popen[bytes], tmp_path: Path) -> None:
    future = cluster.on("extra", tasks.nested)
    assert [cluster.on(name, tasks.total_of_nested, future).result() for name in ("a1", "b1")] == [SIZE, SIZE]
    assert cluster.shares("a") == 2 and future.result()["weights"].held
    cluster.client.retire_workers([cluster.workers["extra"]], close_workers=True)
    extra.wait()
    assert [cluster.on(name, tasks.total_of_nested, future).result() for name in ("a1", "b1", "b2")] == [SIZE] * 3
    # A worker's pickles, of which one may be its disk's, have the bytes; a scheduler may pass them on.
    pickled = cluster.on("a1", pickle.dumps, future).result()
    del future
    until(lambda: cluster.shares("a") == cluster.shares("b") == 0)
    for protocol in (4, 5):
        passed = pickle.loads(pickle.dumps(pickle.loads(pickled), protocol))
        assert not passed["weights"].held and cluster.shares("a") == 0
        assert tasks.total_of_nested(passed) == SIZE
        passed.clear()
        until(lambda: cluster.shares("a") == 0)


def test_copies_are_the_object(cluster: Cluster) -> None:
    share = abd.put(np.ones(3))
    assert copy.copy(share) is share and copy.deepcopy([share])[0] is share


def test_any_replica_may_be_the_last(cluster: Cluster) -> None:
    share = cluster.on("a1", tasks.made)
    assert [cluster.on(name, tasks.total, share).result() for name in ("a2", "b1")] == [SIZE, SIZE]
    for _ in range(3):
        cluster.client.amm.run_once()  # Dask drops all replicas but one
        until(lambda: len(next(iter(cluster.client.who_has(share).values()))) == 1)
        assert [cluster.on(name, tasks.total, share).result() for name in ("a1", "a2", "b1", "b2")] == [SIZE] * 4


def test_retirement_moves_the_only_replica(cluster: Cluster, extra: subprocess.Popen[bytes]) -> None:
    share = cluster.on("extra", tasks.made)
    distributed.wait(share)
    cluster.client.retire_workers([cluster.workers["extra"]], close_workers=True)
    assert extra.wait() == 0
    assert cluster.on("a1", tasks.total, share).result() == SIZE


def test_a_replica_survives_the_kill_of_its_producer(cluster: Cluster, extra: subprocess.Popen[bytes]) -> None:
    share = cluster.on("extra", tasks.made)
    assert cluster.on("a2", tasks.total, share).result() == SIZE
    extra.send_signal(signal.SIGKILL)
    extra.wait()
    assert cluster.on("a2", tasks.total, share).result() == SIZE
    assert cluster.on("a1", tasks.total, share).result() == SIZE


def test_dask_makes_what_was_lost_again(cluster: Cluster, extra: subprocess.Popen[bytes]) -> None:
    shares = cluster.client.map(tasks.made, range(25), pure=False)
    distributed.wait(shares)
    assert cluster.client.has_what()[cluster.workers["extra"]], cluster.client.has_what()
    extra.send_signal(signal.SIGKILL)
    extra.wait()
    assert cluster.on("a2", tasks.sum_of_all, *shares).result() == SIZE * sum(range(25))


def test_a_share_inside_the_arguments_of_a_task(cluster: Cluster) -> None:
    share = abd.put(np.ones(SIZE, "f4"))
    assert cluster.on("a1", tasks.total, share).result() == SIZE
    assert cluster.on("a1", tasks.sum_of_all, *[share] * 3).result() == 3 * SIZE
    assert_refused(cluster.on("b1", tasks.total, share), BrokerUnavailable, r"client\.scatter\(share\)")


def test_a_share_inside_arguments_is_pulled_from_its_worker(cluster: Cluster) -> None:
    future = cluster.on("a1", tasks.made)
    share = future.result()
    assert cluster.on("b1", tasks.total, share).result() == SIZE
    assert cluster.sent("a1")[-1] == NBYTES
    del future
    until(lambda: cluster.shares("a") == 1)
    assert_refused(cluster.on("b2", tasks.total, share), BrokerUnavailable, "does not have it any more")


def test_a_client_pulls_through_the_scheduler(cluster: Cluster) -> None:
    future = cluster.on("b1", tasks.made)
    ticket = cluster.on("b1", tasks.reference_to, future).result()
    share = dask_share.unpickled(ticket)
    assert not share.held
    assert share.get().sum() == SIZE and share.held
    del future, share
    until(lambda: cluster.shares("a") == cluster.shares("b") == 0)
    with pytest.raises(BrokerUnavailable, match="does not have it any more"):
        dask_share.unpickled(ticket).get()


def test_a_share_whose_maker_dropped_it(cluster: Cluster) -> None:
    share = abd.put(np.ones(3))
    pickled = pickle.dumps(share)
    del share
    until(lambda: cluster.shares("a") == 0)
    with pytest.raises(ShareNotFound, match="its maker dropped it"):
        pickle.loads(pickled).get()


def test_unpickling_uses_no_broker(cluster: Cluster, tmp_path: Path) -> None:
    share = abd.put(np.ones(3))
    (tmp_path / "share").write_bytes(pickle.dumps(share))
    code = """
import pickle, sys
from arraybridge.broker import replica
share = pickle.load(open(sys.argv[1], "rb"))
assert pickle.loads(pickle.dumps(share)).nbytes == share.nbytes and not replica._brokers
try:
    share.get()
except Exception as error:
    print(type(error).__name__)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "share")]
    done = subprocess.run(command, env=environment(ARRAYBRIDGE_ADDRESS=str(tmp_path)), capture_output=True, text=True, check=False)
    assert done.stdout == "BrokerUnavailable\n", done.stderr


def test_without_start_and_before_distributed_is_imported(cluster: Cluster) -> None:
    code = """
import sys
import arraybridge.integrations.dask as abd
assert "distributed" not in sys.modules and "dask" not in sys.modules
import arrow_table
import dask_tasks as tasks
import distributed
with distributed.Client(sys.argv[1]) as client:
    future = client.submit(tasks.made, 2.0, workers=[sys.argv[2]])
    share = future.result()
    assert share.held and isinstance(share, abd.Share)
    print(share.get().sum(), abd.empty(3, "f4").size)
"""
    for worker in ("a1", "b1"):
        command = [sys.executable, "-c", code, cluster.scheduler, cluster.workers[worker]]
        path = os.pathsep.join(sys.path)
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
        assert done.stdout == f"{2.0 * SIZE} 3\n", done.stderr


def test_a_worker_without_a_broker(cluster: Cluster, tmp_path: Path) -> None:
    with tasks.worker(cluster.scheduler, str(tmp_path), "bare"):
        cluster.find("bare")
        with pytest.raises(BrokerUnavailable, match=f"worker {cluster.workers['bare']} has no broker"):
            abd.start(cluster.client)
        share = cluster.on("a1", tasks.made)
        assert_refused(cluster.on("bare", tasks.total, share), BrokerUnavailable, str(tmp_path))
        assert cluster.on("bare", sum, [1, 2]).result() == 3
        del share


def test_a_broker_that_is_started_anew(cluster: Cluster, tmp_path: Path) -> None:
    daemon = start_daemon(str(tmp_path), "--log-level", "warn")
    try:
        with tasks.worker(cluster.scheduler, str(tmp_path), "own"):
            cluster.find("own")
            share = cluster.on("own", tasks.made)
            assert cluster.on("own", tasks.total, share).result() == SIZE
            daemon.kill()
            daemon.wait()
            daemon = start_daemon(str(tmp_path), "--log-level", "warn")
            assert_refused(cluster.on("own", tasks.total, share), ShareNotFound, "")
            fresh = cluster.on("own", tasks.made, 2.0)
            assert cluster.on("a1", tasks.total, fresh).result() == 2 * SIZE
            with arraybridge.Broker(tmp_path, start="never") as broker:
                del share, fresh
                until(lambda: broker.stats()["shares"] == 0)
    finally:
        stop_daemon(daemon)


def test_two_network_namespaces(cluster: Cluster) -> None:
    code = """
import json, sys
import distributed
import arrow_table
import dask_tasks as tasks
import arraybridge.integrations.dask as abd
_, here, there, *prefix = sys.argv
with distributed.LocalCluster(n_workers=1, threads_per_worker=1, host=here, dashboard_address=None) as made, \
        distributed.Client(made) as client, tasks.worker(made.scheduler_address, there, "far", *prefix):
    client.wait_for_workers(2)
    brokers = abd.start(client)
    [far] = [address for address, broker in brokers.items() if broker == there]
    [near] = brokers.keys() - {far}
    client.run(tasks.counting)
    share = client.submit(tasks.made, workers=[near])
    back = client.submit(tasks.same, client.submit(tasks.same, share, workers=[far], pure=False), workers=[near], pure=False)
    totals = [client.submit(tasks.total, each, workers=[on]).result() for each, on in ((share, near), (share, far), (back, near))]
    arrived = client.submit(tasks.made, 2.0, workers=[far]).result()
    print(json.dumps([*totals, float(arrived.get().sum()), client.run(tasks.sent), near, far]))
"""
    if reason := why_not():
        pytest.skip(reason)
    with hosts(2) as (here, there):
        command = [*here.prefix, sys.executable, "-c", code, here.address, cluster.brokers["b"].address, *there.prefix]
        path = os.pathsep.join(sys.path)
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *totals, sent, near, far = json.loads(done.stdout)
    assert totals == [SIZE, SIZE, SIZE, 2 * SIZE]
    assert near.split(":")[1] != far.split(":")[1], "two addresses"
    assert NBYTES in sent[near] and NBYTES in sent[far]


def test_a_ticket_that_is_none(cluster: Cluster) -> None:
    share = abd.put(np.ones(3))
    fields, origin, worker = share.ticket().plain
    for plain in (None, (), (fields, origin), (fields[:-1], origin, worker), (fields, (1, 2, 3), worker), (fields, origin, None),
                  (("1", *fields[1:]), origin, worker), ((*fields[:5], [()], *fields[6:]), origin, worker)):  # fmt: skip
        with pytest.raises(InvalidRequest, match="same version"):
            dask_share.ticket_from(plain)


def test_a_ticket_of_an_unknown_broker(cluster: Cluster) -> None:
    fields, origin, _ = abd.put(np.ones(3)).ticket().plain
    foreign = (fields[0], b"\1" * 16, *fields[2:])
    for worker, reason in (("", "no worker is known"), ("tcp://127.0.0.1:9", "does not answer")):
        share = dask_share.unpickled((foreign, (b"\1" * 16, *origin[1:]), worker))
        # Dask tries to connect until this is over.
        with distributed.dask.config.set({"distributed.comm.timeouts.connect": "200ms"}), pytest.raises(BrokerUnavailable, match=reason):
            share.get()


def test_bytes_that_do_not_fit_their_ticket(cluster: Cluster) -> None:
    share = abd.put(np.ones(3))
    header, frames = dask_share.dump(share)
    fields, origin, _ = header["ticket"]
    ended = (fields[0] + 1000, *fields[1:])
    for wrong in ([], [frames[0][:-1]], [*frames, *frames]):
        loaded = dask_share.load({"ticket": (ended, (origin[0], "default", 1 << 40), ""), "bytes": True}, wrong)
        with pytest.raises(InvalidRequest, match="bytes"):
            loaded.get()


def test_a_name_of_the_index_that_was_taken(cluster: Cluster) -> None:
    broker = cluster.brokers["b"]
    future = cluster.on("a1", tasks.made)
    run, _, id = cluster.on("a1", lambda share: share.origin, future).result()
    foreign = broker.put(np.ones((2, 2)), f"dask/{run.hex()}/{id}")
    assert cluster.on("b1", tasks.total, future).result() == SIZE
    foreign.withdraw()


def test_dask_knows_its_size(cluster: Cluster) -> None:
    from dask.sizeof import sizeof

    share = abd.put(np.ones(SIZE, "f4"))
    assert sizeof(share) == share.nbytes == NBYTES
    future = cluster.on("a1", tasks.made)
    distributed.wait(future)
    assert NBYTES <= cluster.client.nbytes(summary=False)[future.key] < 2 * NBYTES


def test_a_spilled_share_leaves_the_broker(cluster: Cluster, tmp_path: Path) -> None:
    from distributed.spill import SpillBuffer

    buffer = SpillBuffer(str(tmp_path), target=int(1.5 * NBYTES))
    buffer["first"] = abd.put(np.ones(SIZE, "f4"))
    buffer["second"] = abd.put(np.full(SIZE, 2, "f4"))
    until(lambda: cluster.shares("a") == 1)
    assert set(buffer.slow) == {"first"}
    assert buffer["first"].get().sum() == SIZE
    assert buffer["second"].get().sum() == 2 * SIZE
    buffer.clear()


def test_a_forked_child_withdraws_nothing(cluster: Cluster) -> None:
    share = abd.put(np.ones(3))
    child = os.fork()
    if child == 0:
        del share
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert share.get().sum() == 3


def test_threads_that_use_a_share_first(cluster: Cluster) -> None:
    made = abd.put(np.ones(3))
    share = pickle.loads(pickle.dumps(made))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert {array.sum() for array in pool.map(lambda _: share.get(), range(32))} == {3}
    assert cluster.shares("a") == 2


def test_an_older_dask_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "__version__", "2024.1.0")
    with pytest.raises(FrameworkNotAvailable, match=r"distributed 2026\.8 is not available: this is 2024\.1\.0"):
        abd.register()


def test_peers_are_told_once(cluster: Cluster) -> None:
    assert not dask_peers.is_own(cluster.workers["a1"]), "this process has no workers"
    assert dask_peers.runs[cluster.workers["a1"]] == replica.run_of(cluster.brokers["a"])
