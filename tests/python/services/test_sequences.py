# SPDX-License-Identifier: Apache-2.0
"""Sequences: an answer of several items, which the caller gets as the server sends them."""

import asyncio
import gc
import threading
import weakref

import numpy as np
import pytest

import arraybridge
from arraybridge import BrokerTimeout, InvalidRequest, RequestFailed, ServerGone

SECOND = {"request": "second"}
X = {"x": "x"}
ROOM = 8  # items that a server sends ahead of the caller's loop


class Server(threading.Thread):
    """Answers one request by `answer`, and asks for the next one."""

    def __init__(self, broker, answer, framework="numpy", **terms):
        super().__init__()
        self._broker, self._answer, self._framework, self._terms = broker, answer, framework, terms
        self.error = None
        self.start()

    def join(self):
        super().join(120)
        assert not self.is_alive()
        assert self.error is None

    def run(self):
        try:
            with self._broker.service("count", **self._terms) as service:
                for number, request in enumerate(service.requests(self._framework, timeout=120)):
                    if number:
                        return request.reply(SECOND)
                    self._answer(request)
        except BaseException as error:
            self.error = error


def ends(broker, server):
    """Lets the server's loop go on, and end."""
    assert broker.call("count", SECOND, timeout=120) == SECOND
    server.join()


def count(request):
    for number in range(int(request.value["n"])):
        assert request.stream({"n": number, "x": request.value["x"] + number})


@pytest.mark.filterwarnings("error::arraybridge.CopyWarning")
@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("items", [1, 5, 100])
def test_items_arrive_in_order(broker, framework, items):
    server = Server(broker, count, framework)
    got = list(broker.call("count", {"n": items, "x": np.ones(3)}, framework, stream=True, timeout=120))
    assert [item["n"] for item in got] == list(range(items))
    assert [item["x"].tolist() for item in got] == [[1.0 + number] * 3 for number in range(items)]
    assert arraybridge.detect_memory_type(got[0]["x"]) == framework
    ends(broker, server)


@pytest.mark.parametrize(
    ("answer", "items"),
    [
        (lambda request: request.stream([1]) and request.reply([2]), [[1], [2]]),
        (lambda request: request.reply([2]), [[2]]),
        (lambda request: request.end(), []),
        (lambda request: request.stream([1]) and request.end(), [[1]]),
    ],
)
def test_the_end_of_a_sequence(broker, answer, items):
    server = Server(broker, answer)
    answers = broker.call("count", X, stream=True, timeout=120)
    assert list(answers) == items
    assert list(answers) == []
    ends(broker, server)


def test_an_answered_sequence_is_over(broker):
    def answer(request):
        assert request.stream([1])
        assert request.end()
        for again in (lambda: request.stream([2]), request.end, lambda: request.reply([2])):
            with pytest.raises(InvalidRequest, match="each is answered once"):
                again()

    server = Server(broker, answer)
    assert list(broker.call("count", X, stream=True, timeout=120)) == [[1]]
    ends(broker, server)


def test_a_server_waits_for_a_slow_caller_and_other_calls_do_not(broker, serve):
    sent = threading.Semaphore(0)
    numbers = []

    def answer(request):
        for number in range(30):
            assert request.stream([number])
            numbers.append(number)
            sent.release()

    server = Server(broker, answer)
    serve(name="double")
    answers = broker.call("count", X, stream=True, timeout=600)
    for _ in range(ROOM):
        assert sent.acquire(timeout=120)
    for number in range(20):
        assert broker.call("double", {"n": number, "x": np.ones(2)}, timeout=120)["n"] == number
    assert numbers == list(range(ROOM))
    assert list(answers) == [[number] for number in range(30)]
    ends(broker, server)


def stopped(broker, request_is, begin):
    """A server that streams without an end; `begin` takes items and stops. What the server saw."""
    seen = []

    def answer(request):
        seen.append(request.cancelled)
        while request.stream(np.ones(3)):
            continue
        seen.append(request.cancelled)
        seen.append(request.reply([1]))

    server = Server(broker, answer)
    begin()
    server_goes_on = broker.call("count", SECOND, timeout=120)
    server.join()
    assert server_goes_on == SECOND
    assert seen == request_is


def test_a_loop_that_ends_early_cancels_the_request(broker):
    def begin():
        for number, _ in enumerate(broker.call("count", X, stream=True)):
            if number == 20:
                break

    stopped(broker, [False, True, False], begin)


def test_a_closed_sequence_cancels_the_request(broker):
    def begin():
        with broker.call("count", X, stream=True) as answers:
            assert next(answers).tolist() == [1, 1, 1]
        assert list(answers) == []
        answers.close()

    stopped(broker, [False, True, False], begin)


def test_the_time_of_a_sequence_is_over(broker):
    def begin():
        answers = broker.call("count", X, stream=True, timeout=1)
        with pytest.raises(BrokerTimeout, match="has not answered within 1 s") as told:
            list(answers)
        assert told.value.reason == "NOT_ANSWERED"

    stopped(broker, [False, True, False], begin)


def test_no_server_takes_it_in_time(broker):
    with pytest.raises(BrokerTimeout, match="no server of service 'count' has taken the request within 0.05 s"):
        next(broker.call("count", X, stream=True, timeout=0.05))


def test_a_caller_that_wants_one_answer_is_told(broker):
    seen = []

    def answer(request):
        seen.append([request.stream([1]), request.cancelled, request.stream([2]), request.end(), request.reply([3])])

    server = Server(broker, answer)
    with pytest.raises(RequestFailed, match="pass stream=True to Broker.call"):
        broker.call("count", X, timeout=120)
    ends(broker, server)
    assert seen == [[False, True, False, False, False]]


def test_a_sequence_that_fails_in_the_middle(broker):
    server = Server(broker, lambda request: request.stream([1]) and request.fail("the film is torn"))
    answers = broker.call("count", X, stream=True, timeout=120)
    assert next(answers) == [1]
    with pytest.raises(RequestFailed, match="the film is torn"):
        next(answers)
    assert list(answers) == []
    ends(broker, server)


def test_a_sequence_without_an_item_and_without_an_end_fails(broker):
    server = Server(broker, lambda request: None)
    answers = broker.call("count", X, stream=True, timeout=120)
    ends(broker, server)
    with pytest.raises(RequestFailed, match="without an answer"):
        next(answers)


def test_an_event_loop_iterates(broker):
    server = Server(broker, count)

    async def main():
        return [item["n"] async for item in await broker.acall("count", {"n": 20, "x": np.ones(2)}, stream=True, timeout=120)]

    assert asyncio.run(main()) == list(range(20))
    ends(broker, server)


def test_an_item_of_a_cancelled_task_is_kept(broker):
    begun = threading.Event()

    def answer(request):
        begun.wait(120)
        count(request)

    server = Server(broker, answer)

    async def main():
        answers = await broker.acall("count", {"n": 3, "x": np.ones(2)}, stream=True, timeout=120)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(answers), 0.05)
        begun.set()
        return [item["n"] async for item in answers]

    assert asyncio.run(main()) == [0, 1, 2]
    ends(broker, server)


def test_a_killed_server_is_told_after_its_items(broker, serve, record):
    for kind in ("sequence", "retry-sequence"):  # an item has arrived: with another server it would arrive again
        server = serve(kind)
        answers = broker.call("double", {"n": 5, "x": np.ones(3)}, stream=True)
        assert [next(answers)["n"] for _ in range(5)] == [0, 1, 2, 3, 4]
        assert server.stdout.readline().split() == ["holds", "5"]
        server.kill()
        with pytest.raises(ServerGone, match="ended with the request in its hands") as told:
            next(answers)
        assert told.value.process_id == server.pid


def test_with_retry_the_next_server_begins_the_sequence(broker, serve):
    server = serve("retry-sequence")
    answers = broker.call("double", {"n": 0, "x": np.ones(3)}, stream=True)
    assert server.stdout.readline().split() == ["holds", "0"]
    server.kill()
    other = serve("retry")
    assert [item["pid"] for item in answers] == [other.pid]


def test_the_end_of_the_broker_ends_a_wait_for_room(tmp_path):
    with arraybridge.Broker(start="private") as broker:
        full = threading.Event()

        def answer(request):
            for number in range(2 * ROOM):
                if number == ROOM:
                    full.set()
                if not request.stream([number]):
                    return

        server = Server(broker, answer)
        answers = broker.call("count", X, stream=True)
        assert next(answers) == [0]
        assert full.wait(120)
    server_error = None
    threading.Thread.join(server, 120)
    server_error = server.error
    assert not server.is_alive()
    assert isinstance(server_error, arraybridge.BrokerError)
    with pytest.raises(arraybridge.BrokerUnavailable):
        list(answers)


def test_items_that_are_not_taken_are_freed(broker):
    server = Server(broker, lambda request: [request.stream(np.ones(1000)) for _ in range(ROOM)])
    answers = broker.call("count", X, stream=True, timeout=120)
    assert next(answers).sum() == 1000
    assert broker.call("count", SECOND, timeout=120) == SECOND
    server.join()
    held = weakref.ref(answers._call)  # it has the other items
    assert held() is not None
    del answers
    gc.collect()
    assert held() is None
