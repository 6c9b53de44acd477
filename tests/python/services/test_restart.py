# SPDX-License-Identifier: Apache-2.0
"""Services of a broker that is killed and continued: one outcome for each call, and no request is executed twice."""

import os
import signal
import threading

import numpy as np
import pytest
from processes import daemons_of, start_daemon, stop_daemon

import arraybridge
from arraybridge import BrokerUnavailable


@pytest.fixture
def kept(tmp_path):
    """The directory of a broker that its keeper continues."""
    directory = tmp_path / "broker"
    keeper = start_daemon(str(directory), "--log-level", "off", "--keeper")
    yield directory
    assert stop_daemon(keeper) == 0


@pytest.fixture
def broker(kept):
    with arraybridge.Broker(kept, start="never", timeout_s=60) as made:
        yield made


def kill(directory):
    for daemon in daemons_of(directory):
        os.kill(daemon, signal.SIGKILL)


def executed(record):
    return sorted(int(line.split()[0]) for line in record.read_text().splitlines())


def test_calls_outlive_the_broker(kept, broker, serve, record):
    for _ in range(2):
        serve(at=str(kept))
    for life in range(3):
        futures = [broker.submit("double", {"n": 100 * life + number, "x": np.full(4, number)}) for number in range(100)]
        kill(kept)
        for number, future in enumerate(futures):
            answer = future.result(300)
            assert answer["n"] == 100 * life + number
            assert answer["x"].tolist() == [2 * number] * 4
    assert executed(record) == list(range(300))


def test_a_request_in_the_hands_of_a_server_outlives_the_broker(kept, broker, serve):
    server = serve("cancel", at=str(kept))
    future = broker.submit("double", {"n": 1, "x": np.ones(4)})
    assert server.stdout.readline().startswith("holds")
    kill(kept)
    future.cancel()  # the server hears of it through the next daemon
    assert server.stdout.readline().startswith("cancelled")


def test_a_server_that_dies_with_the_broker(kept, broker, serve):
    server = serve("hold", at=str(kept))
    future = broker.submit("double", {"n": 1, "x": np.ones(4)})
    assert server.stdout.readline() == "holds 1\n"
    kill(kept)
    server.kill()
    with pytest.raises(arraybridge.ServerGone):
        future.result(300)


def test_without_a_keeper_calls_end_with_the_broker(tmp_path, begin, serve):
    directory = tmp_path / "alone"
    daemon = start_daemon(str(directory), "--log-level", "off")
    with arraybridge.Broker(directory, start="never", timeout_s=60) as broker:
        server = serve("hold", at=str(directory))
        futures = [broker.submit("double", {"n": number, "x": np.ones(4)}) for number in range(2)]
        assert server.stdout.readline() == "holds 0\n"
        daemon.kill()
        daemon.wait()
        for future in futures:
            with pytest.raises(BrokerUnavailable):
                future.result(300)
        with pytest.raises(BrokerUnavailable):
            broker.call("double", np.ones(3), timeout=1)


def test_a_sequence_goes_on_with_the_next_broker(kept, broker):
    """Each item arrives once, and in order."""
    stopped = []

    def serve():
        with arraybridge.Broker(kept, start="never", timeout_s=60).service("count") as service:
            for request in service.requests(timeout=300):
                for number in range(60):
                    stopped.append(not request.stream({"n": number, "x": np.full(4, number)}))
                request.end()
                return

    server = threading.Thread(target=serve)
    server.start()
    items = []
    for item in broker.call("count", {"x": np.ones(2)}, stream=True, timeout=300):
        items.append((item["n"], int(item["x"].sum())))
        if len(items) % 20 == 10:
            kill(kept)
    server.join()
    assert items == [(number, 4 * number) for number in range(60)]
    assert not any(stopped)
