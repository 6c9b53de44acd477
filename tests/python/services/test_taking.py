# SPDX-License-Identifier: Apache-2.0
"""A server takes requests one call at a time, and in a loop of its own that waits for other things, too."""

import gc
import os
import selectors
import threading
import time

import numpy as np
import pytest

import arraybridge
from arraybridge import BrokerTimeout, ChannelClosed


def number(n):
    return {"n": n, "x": np.full(3, n)}


def test_receive_takes_several_that_are_answered_in_any_order(broker):
    with broker.service("double") as service:
        futures = [broker.submit("double", number(n), timeout=120) for n in range(4)]
        taken = [service.receive(timeout=120) for _ in range(4)]
        for request in reversed(taken):
            assert request.reply({"n": request.value["n"]})
        assert [future.result(120)["n"] for future in futures] == [0, 1, 2, 3]


def test_requests_are_answered_by_other_threads(broker):
    with broker.service("double") as service:
        futures = [broker.submit("double", number(n), timeout=120) for n in range(8)]
        threads = []
        for _ in range(8):
            request = service.receive(timeout=120)
            threads.append(threading.Thread(target=lambda request=request: request.reply(request.value)))
            threads[-1].start()
        assert [future.result(120)["n"] for future in futures] == list(range(8))
        for thread in threads:
            thread.join()


def test_try_receive_does_not_wait(broker):
    with broker.service("double") as service:
        assert service.try_receive() is None
        with pytest.raises(BrokerTimeout, match="no request for service 'double'") as told:
            service.receive(timeout=0)
        assert told.value.reason == "NO_REQUEST"
        future = broker.submit("double", number(1), timeout=120)
        while (request := service.try_receive()) is None:
            time.sleep(0.001)
        assert request.value["x"].tolist() == [1, 1, 1]
        request.reply(request.value)
        assert future.result(120)["n"] == 1
    with pytest.raises(ChannelClosed, match="was closed here"):
        service.try_receive()


def test_select_waits_for_a_service_and_a_channel(broker):
    frames = broker.channel("frames")
    with broker.service("double") as service:
        assert arraybridge.select([service, frames], timeout=0.01) == []
        future = broker.submit("double", number(1), timeout=120)
        assert arraybridge.select([service, frames], timeout=120) == [service]
        frames.send(np.ones(2))
        while len(arraybridge.select([service, frames], timeout=120)) < 2:
            continue
        assert frames.receive().tolist() == [1, 1]
        request = service.try_receive()
        assert arraybridge.select([service, frames], timeout=0.01) == []
        request.reply(request.value)
        assert future.result(120)["n"] == 1


@pytest.mark.parametrize("batch", [None, 4])
def test_a_selector_serves(broker, serve, batch):
    """Every request is answered, those too that come while the loop works."""
    with broker.service("double", batch=batch) as service, selectors.DefaultSelector() as selector:
        selector.register(service.fileno(), selectors.EVENT_READ)
        futures = [broker.submit("double", number(n), timeout=120) for n in range(40)]
        left = 40
        while left:
            assert selector.select(120)
            taken = service.receive(timeout=0)
            for request in taken if batch else [taken]:
                request.reply(request.value)
                left -= 1
        assert [future.result(120)["n"] for future in futures] == list(range(40))


def test_a_request_that_was_taken_ahead_goes_to_another_server(broker, serve, record):
    service = broker.service("double").open()
    future = broker.submit("double", {"n": 7, "x": np.ones(2)}, timeout=120)
    assert arraybridge.select([service], timeout=120) == [service]
    other = serve()
    service.close()
    assert future.result(120)["pid"] == other.pid
    assert [line.split()[0] for line in record.read_text().splitlines()] == ["7"]


def test_a_closed_service_is_ready(broker):
    service = broker.service("double").open()
    assert arraybridge.select([service], timeout=0) == []
    waits = threading.Thread(target=arraybridge.select, args=([service], 120))
    waits.start()
    service.close()
    waits.join(120)
    assert not waits.is_alive()
    assert arraybridge.select([service], timeout=0) == [service]
    with pytest.raises(ChannelClosed):
        service.receive()


def test_a_dropped_service_ends_its_threads(broker):
    before = set(threading.enumerate())
    service = broker.service("double")
    service.fileno()
    threads = set(threading.enumerate()) - before
    assert len(threads) == 2
    del service
    gc.collect()
    for each in threads:
        each.join(120)
        assert not each.is_alive()


def test_a_service_of_the_parent_is_not_of_its_child(broker):
    service = broker.service("double").open()
    service.fileno()
    child = os.fork()
    if child == 0:
        try:
            service.receive(timeout=0)
        except arraybridge.InvalidRequest as error:
            os._exit(0 if "after the fork" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    future = broker.submit("double", number(1), timeout=120)
    service.receive(timeout=120).reply({"n": 1})
    assert future.result(120)["n"] == 1
    service.close()
