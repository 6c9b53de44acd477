# SPDX-License-Identifier: Apache-2.0
"""Batches: several requests at a time, of callers that wait for one answer each."""

import threading
import time

import numpy as np
import pytest

from arraybridge import BrokerTimeout, InvalidRequest, RequestFailed


class Server(threading.Thread):
    """Answers batches by `answer`, until as many requests as it is made for have come."""

    def __init__(self, broker, answer, requests, framework="numpy", **terms):
        super().__init__()
        self._broker, self._answer, self._left, self._framework, self._terms = broker, answer, requests, framework, terms
        self.sizes = []
        self.error = None
        self.start()

    def join(self):
        super().join()
        assert self.error is None

    def run(self):
        try:
            self._serve()
        except BaseException as error:
            self.error = error

    def _serve(self):
        with self._broker.service("double", **self._terms) as service:
            for batch in service.requests(self._framework, timeout=120):
                self.sizes.append(len(batch))
                self._answer(batch)
                self._left -= len(batch)
                if not self._left:
                    return


@pytest.mark.filterwarnings("error::arraybridge.CopyWarning")
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_requests_are_stacked(broker, framework):
    futures = [broker.submit("double", np.full(3, number, "float32"), timeout=120) for number in range(8)]
    server = Server(broker, lambda batch: batch.reply(batch.stack() * 2), 8, framework, batch=4, within=5)
    assert [future.result(120).tolist() for future in futures] == [[2 * number] * 3 for number in range(8)]
    server.join()
    assert server.sizes == [4, 4]  # they waited before the server came


def test_a_batch_does_not_wait_longer_than_within(broker):
    """There is one caller, which waits for its answer before it calls again."""
    server = Server(broker, lambda batch: batch.reply(batch.values), 3, batch=8, within=0.01)
    for number in range(3):
        assert broker.call("double", np.full(2, number), timeout=120).tolist() == [number, number]
    server.join()
    assert server.sizes == [1, 1, 1]


def test_trees_are_stacked(broker):
    def answer(batch):
        stacked = batch.stack()
        assert stacked["kind"] == "left"
        assert stacked["x"].shape == (2, 3)
        batch.reply([{"sum": values.sum()} for values in stacked["x"]])

    futures = [broker.submit("double", {"x": np.full(3, number), "kind": "left"}, timeout=120) for number in (1, 2)]
    server = Server(broker, answer, 2, batch=2, within=60)
    assert [int(future.result(120)["sum"]) for future in futures] == [3, 6]
    server.join()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([np.ones(3), np.ones(4)], "one shape and dtype: request 1 has"),
        ([np.ones(3, "float32"), np.ones(3)], "one shape and dtype: request 1 has"),
        ([{"a": np.ones(3)}, {"b": np.ones(3)}], "equal trees: request 1"),
    ],
)
def test_requests_that_differ_are_not_stacked(broker, values, words):
    refused = []

    def answer(batch):
        with pytest.raises(InvalidRequest, match=words) as told:
            batch.stack()
        refused.append(told.value)
        batch.reply(batch.values)

    futures = [broker.submit("double", value, timeout=120) for value in values]
    server = Server(broker, answer, 2, batch=2, within=60)
    for future in futures:
        future.result(120)
    server.join()
    assert len(refused) == 1


def test_each_request_of_a_batch_has_its_own_outcome(broker):
    def answer(batch):
        with pytest.raises(InvalidRequest, match="one result for each of the 3 requests, not 2"):
            batch.reply([1, 2])
        if batch.values[0][0] == 3:
            return batch.fail("the second batch is not for me")
        assert repr(batch) == "<Batch of 3 requests>"
        batch[0].fail("the first one is not for me")
        batch[1].reply(batch[1].value)
        # And the third has no answer.

    futures = [broker.submit("double", np.full(2, number), timeout=120) for number in range(3)]
    server = Server(broker, answer, 6, batch=3, within=60)
    with pytest.raises(RequestFailed, match="the first one is not for me"):
        futures[0].result(120)
    assert futures[1].result(120).tolist() == [1, 1]
    later = [broker.submit("double", np.full(2, number), timeout=120) for number in (3, 4, 5)]
    with pytest.raises(RequestFailed, match="without an answer"):
        futures[2].result(120)
    for future in later:
        with pytest.raises(RequestFailed, match="the second batch is not for me"):
            future.result(120)
    server.join()


def test_a_request_that_is_over_is_in_no_batch(broker):
    with pytest.raises(BrokerTimeout):
        broker.call("double", np.zeros(2), timeout=0.05)
    futures = [broker.submit("double", np.full(2, number), timeout=120) for number in (1, 2)]
    server = Server(broker, lambda batch: batch.reply(batch.values), 2, batch=2, within=60)
    assert [future.result(120).tolist() for future in futures] == [[1, 1], [2, 2]]
    server.join()
    assert server.sizes == [2]


def test_a_server_is_told_of_more_cancelled_requests_than_its_box_holds(broker):
    """All of a batch are cancelled while the server does not read its box, which has room for seven letters."""
    with broker.service("held", batch=12, within=600) as service:
        futures = [broker.submit("held", np.ones(2), timeout=600) for _ in range(12)]
        batch = service.receive(timeout=600)
        assert len(batch) == 12
        for future in futures:
            future.cancel()
        waiting, until = list(batch), time.monotonic() + 10
        while waiting and time.monotonic() < until:
            waiting = [each for each in waiting if not each.cancelled]
        assert waiting == []
