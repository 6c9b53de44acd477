# SPDX-License-Identifier: Apache-2.0
"""The end of things: interpreter exit with live arrays, drops in every order and on any thread (fault 35)."""

import gc
import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial

import numpy as np
import pytest
from processes import FRAMEWORKS, environment, run_client, run_together, selected, start_daemon, stop_daemon

import arraybridge

EXIT = """
import sys, arraybridge
broker = arraybridge.Broker(sys.argv[1], namespace=f"exit-{sys.argv[2]}", start="never")
broker.put(bytearray(range(200)) * 100, "a", replace=True)
held = [broker.get("a", sys.argv[2]) for _ in range(5)]
share = broker.put(held[0])
aliases = [memoryview(share.view()), share.view().__dlpack__(max_version=(1, 0))]
pending = broker.empty(1000, "uint8")
"""


WAYS_TO_KEEP = ["held.append(held)", "", "broker.close()", "import builtins; builtins.kept = held"]
# Arrays of every framework in builtins are in the next test.
FEWER = [(name, keep) for name in FRAMEWORKS for keep in WAYS_TO_KEEP[: {"numpy": 4, "torch": 3}.get(name, 2)]]


@pytest.mark.parametrize(
    ("framework", "keep"), itertools.product(FRAMEWORKS, WAYS_TO_KEEP) if os.environ.get("ARRAYBRIDGE_LONG") else FEWER
)
def test_exit_with_live_arrays(exits, framework, keep):
    if not importlib.util.find_spec(framework):
        pytest.skip(f"{framework} is not installed")
    exits[framework, keep].result()
    with arraybridge.Broker(exits["address"], namespace=f"exit-{framework}", start="never") as broker:
        no_lease_is_left(broker)


def no_lease_is_left(broker):
    """The shares that there are. The end of a process is told by its socket, to a thread of the daemon's own."""
    deadline = time.monotonic() + 60
    rows = broker.list()
    while any(row.leases for row in rows) and time.monotonic() < deadline:
        time.sleep(0.01)
        rows = broker.list()
    assert rows and not any(row.leases for row in rows), rows
    return rows


@pytest.fixture(scope="module")
def exits(request, address):
    cases = [(case["framework"], case["keep"]) for case in selected(request, "test_exit_with_live_arrays")]
    return {"address": address, **run_together({case: partial(run_client, EXIT + case[1], address, case[0]) for case in cases})}


THOUSAND = """
import sys, arraybridge, numpy
broker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[3], start="never")
held = []
for number in range(int(sys.argv[4])):
    name = f"{sys.argv[2]} {number}"
    broker.put(numpy.full(16, number, "f4"), name)
    held.append(broker.get(name, sys.argv[2]))
import builtins
builtins.kept = held  # older than everything that could clear it
stats = broker.stats()
print(len(held), stats["client_live_leases"])
"""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_exit_with_very_many_live_arrays_gives_every_lease_back(client, broker, framework):
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    number = 1000 if os.environ.get("ARRAYBRIDGE_LONG") else 50
    assert client(THOUSAND, framework, broker.namespace, str(number)) == f"{number} {number}\n"
    assert len(no_lease_is_left(broker)) == number


def test_what_a_killed_producer_put_is_freed_after_its_last_reader():
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "error")
        producer = subprocess.Popen(
            [sys.executable, "-c", PRODUCER, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )
        assert producer.stdout is not None and producer.stdout.readline() == b"put\n"
        with arraybridge.Broker(directory, start="never") as broker:
            held = {framework: broker.get("frame", framework, require="zero-copy") for framework in FRAMEWORKS}
            producer.kill()
            producer.communicate()
            broker.withdraw("frame")
            with pytest.raises(arraybridge.ShareNotFound):
                broker.get("frame")
            while held:
                assert broker.stats()["charged_bytes"] >= 4_000_000, "somebody reads it"
                framework, array = held.popitem()
                assert float(np.asarray(array)[-1]) == 999_999, framework
                del array
                gc.collect()
                broker.flush()
            deadline = time.monotonic() + 60
            # Memory goes back on a thread of the daemon's own.
            while (stats := broker.stats())["charged_bytes"] and time.monotonic() < deadline:
                time.sleep(0.01)
            assert (stats["charged_bytes"], stats["arenas"], stats["leases"]) == (0, 0, 0)
        assert stop_daemon(daemon) == 0


PRODUCER = """
import sys, numpy, arraybridge
broker = arraybridge.Broker(sys.argv[1], start="never")
broker.put(numpy.arange(1_000_000, dtype="f4"), "frame")
print("put", flush=True)
sys.stdin.read()
"""


def test_exit_inside_a_worker_thread_and_by_an_exception(client, address):
    client(EXIT + "import threading; threading.Thread(target=lambda: held.clear()).start()", "numpy")
    client(EXIT + "sys.exit(0)", "numpy")
    client(EXIT + "import os; os._exit(0)", "numpy")
    with arraybridge.Broker(address, namespace="exit-numpy", start="never") as broker:
        no_lease_is_left(broker)


def leases(broker):
    broker.flush()
    return broker.stats()["client_live_leases"]


@pytest.mark.parametrize("order", list(itertools.permutations(["array", "view", "share", "broker"])), ids=" ".join)
def test_drop_orders(address, broker, order):
    mine = arraybridge.Broker(address, namespace=broker.namespace, start="never")
    share = mine.put(np.arange(100), "a")
    held = {"broker": mine, "share": share, "view": share.view(), "array": mine.get("a")}
    del mine, share
    for name in order:
        if "array" in held:
            assert held["array"][99] == 99
        if "view" in held:
            assert memoryview(held["view"])[99] == 99
        del held[name]
    [row] = broker.list("a")
    # Either the connection has gone, or it has told the broker; both end in no lease.
    while row.leases:
        [row] = broker.list("a")


def test_a_share_holds_no_lease(broker):
    share = broker.put(np.arange(10), "a")
    assert memoryview(share.view())[9] == 9
    assert leases(broker) == 0
    broker.convert(share, "numpy")
    assert leases(broker) == 0


def test_capsules_consumed_and_not(broker):
    share = broker.put(np.arange(10), "a")
    for _ in range(100):
        share.__dlpack__(max_version=(1, 0))
        share.__dlpack__()
        np.from_dlpack(share)
    with pytest.raises(TypeError):
        share.__dlpack__(nonsense=1)
    with pytest.raises(BufferError):
        share.__dlpack__(dl_device=(2, 0))
    assert leases(broker) == 0


def test_an_exception_inside_dlpack_leaves_nothing_behind(broker):
    class Broken:
        def __dlpack__(self, **_):
            raise RuntimeError("broken producer")

        def __dlpack_device__(self):
            return (1, 0)

    with pytest.raises(Exception, match="broken producer"):
        broker.put(Broken(), "never")
    assert not broker.list()


def test_release_on_a_thread(broker):
    broker.put(np.arange(10), "a")
    arrays = [broker.get("a") for _ in range(50)]
    assert leases(broker) >= 1
    thread = threading.Thread(target=arrays.clear)
    thread.start()
    thread.join()
    assert leases(broker) == 0


def test_thousands_of_gets_leak_no_lease_and_no_reference(broker):
    array = np.arange(10)
    before = sys.getrefcount(array)
    for _ in range(1000):
        broker.put(array, "a", replace=True)
        broker.get("a")
    assert sys.getrefcount(array) == before and leases(broker) == 0
    assert len(broker.list()) == 1
