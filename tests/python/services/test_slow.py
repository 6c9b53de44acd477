# SPDX-License-Identifier: Apache-2.0
"""Callers that stand still, requests that are dropped or end their servers, and calls that wait for memory: each costs itself alone."""

import gc
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arraybridge import Broker, BrokerTimeout, InvalidRequest, RequestFailed, ServerGone
from arraybridge.broker.delivery import Delivery
from arraybridge.broker.due import Due
from arraybridge.broker.services import letters
from arraybridge.broker.services.mailbox import Mailbox

REQUESTS = 30
AT_ONCE = Due.after(0)
Process = subprocess.Popen[str]


def line(process: Process) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def value(number: int) -> dict[str, Any]:
    return {"n": number, "x": np.full(4, number)}


@contextmanager
def thread(run: Callable[[], None]) -> Iterator[threading.Thread]:
    made = threading.Thread(target=run)
    made.start()
    yield made
    made.join(60)
    assert not made.is_alive()


def test_a_caller_that_stands_still_delays_no_other_one_and_loses_nothing(
    broker: Broker, serve: Callable[..., Process], begin: Callable[..., Process]
) -> None:
    slow = begin("many.py", "double", REQUESTS)
    assert line(slow) == ["asked"]
    os.kill(slow.pid, signal.SIGSTOP)
    serve()
    begun = time.monotonic()
    assert broker.call("double", value(1), timeout=60)["n"] == 1  # it waits for one of the others, for 5 s
    for number in range(2, 12):
        assert broker.call("double", value(number), timeout=60)["n"] == number
    assert time.monotonic() - begun < 20
    os.kill(slow.pid, signal.SIGCONT)
    assert line(slow) == ["answered", *map(str, range(REQUESTS))]


def test_a_caller_that_takes_no_answers_ends_no_server(
    broker: Broker, begin: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "timeout_s", 0.5)
    reached = list[bool]()

    def work() -> None:
        with broker.service("double") as service:
            held = [service.receive(timeout=60) for _ in range(REQUESTS)]
            os.kill(slow.pid, signal.SIGSTOP)
            for request in held:
                reached.append(request.reply(request.value))
            os.kill(slow.pid, signal.SIGCONT)
            with pytest.raises(BrokerTimeout):
                service.receive(timeout=3)

    slow = begin("many.py", "double", REQUESTS)
    assert line(slow) == ["asked"]
    with thread(work):
        assert line(slow)[0] == "answered" and len(reached) == REQUESTS
    assert not all(reached)
    failed = line(slow)
    assert failed[0] == "failed" and len(failed) - 1 == reached.count(False)


def test_a_callback_of_a_future_may_call_the_same_service(broker: Broker, serve: Callable[..., Process]) -> None:
    serve()
    answers, done = list[Any](), threading.Event()

    def call_again(_: object) -> None:
        answers.append(broker.call("double", value(2), timeout=60)["n"])
        done.set()

    broker.submit("double", value(1), timeout=60).add_done_callback(call_again)
    assert done.wait(30) and answers == [2]


def test_a_request_that_is_dropped_fails(broker: Broker) -> None:
    def work() -> None:
        with broker.service("double") as service:
            service.receive(timeout=60)
            service.receive(timeout=60).reply({"n": 0})

    with thread(work):
        with pytest.raises(RequestFailed, match="dropped the request"):
            future = broker.submit("double", value(1), timeout=60)
            broker.call("double", value(2), timeout=60)
            future.result(60)


def test_a_service_that_is_closed_while_it_reads_a_request_has_it(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = broker.service("double").open(), broker.service("double")
    granted = Delivery.granted

    def slowly(self: Delivery, *arguments: Any) -> Any:
        if threading.current_thread() is worker:
            first.close()
        return granted(self, *arguments)

    monkeypatch.setattr(Delivery, "granted", slowly)
    with thread(lambda: first.receive(timeout=60)) as worker, second:
        with pytest.raises(ServerGone):
            broker.call("double", value(1), timeout=60)
        with pytest.raises(BrokerTimeout):
            second.receive(timeout=0.2)


def test_answers_may_be_dropped_anywhere(broker: Broker, serve: Callable[..., Process]) -> None:
    server = serve("sequence")
    answers = broker.call("double", value(3), timeout=60, stream=True)
    assert next(answers)["n"] == 0
    (caller,) = broker._callers.values()
    with caller._lock:  # the garbage collector may run there, too
        del answers
        gc.collect()
    assert line(server) == ["holds", "3"]
    wait_until(lambda: not caller._calls)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_request_that_ends_its_servers_ends_three(broker: Broker, serve: Callable[..., Process], record: Path) -> None:
    for _ in range(5):
        serve("retry-die")
    with pytest.raises(ServerGone, match="2 others before"):
        broker.call("double", value(1), timeout=60)
    assert len(record.read_text().splitlines()) == 3


def test_services_that_are_called_once_hold_nothing(broker: Broker) -> None:
    for number in range(70):
        with pytest.raises(BrokerTimeout):
            broker.call(f"nobody-{number}", value(1), timeout=0.01)
    assert len(broker._callers) <= 16
    assert sum(each.name == "arraybridge-read_letters" for each in threading.enumerate()) < 40


def test_a_call_that_waits_for_memory_delays_no_other_one(
    broker: Broker, serve: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve()
    serve()
    post, free = Mailbox.post, threading.Event()

    def short_of_memory(self: Mailbox, letter: letters.Letter, content: Any = None, due: Due = AT_ONCE) -> None:
        if letter.kind == letters.GO and letter.number == 1:
            if not due.left():
                raise BrokerTimeout("no memory", 4, "")
            assert free.wait(60)
        post(self, letter, content, due)

    monkeypatch.setattr(Mailbox, "post", short_of_memory)
    waits = broker.submit("double", value(1), timeout=60)
    assert broker.call("double", value(2), timeout=30)["n"] == 2
    free.set()
    assert waits.result(30)["n"] == 1


def test_a_request_that_waits_for_memory_goes_to_one_server(
    broker: Broker, serve: Callable[..., Process], record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = serve("retry")
    post, waits, free = Mailbox.post, threading.Event(), threading.Event()

    def short_of_memory(self: Mailbox, letter: letters.Letter, content: Any = None, due: Due = AT_ONCE) -> None:
        if letter.kind == letters.GO and not free.is_set():
            if not due.left():
                raise BrokerTimeout("no memory", 4, "")
            waits.set()
            assert free.wait(60)
        post(self, letter, content, due)

    monkeypatch.setattr(Mailbox, "post", short_of_memory)
    future = broker.submit("double", value(1), timeout=60)
    assert waits.wait(60)
    (caller,) = broker._callers.values()
    (call,) = caller._calls.values()
    first.kill()
    wait_until(lambda: not call.server)  # it is known that the first server has ended
    free.set()
    second = serve("retry")
    assert future.result(30)["pid"] == second.pid
    assert len(record.read_text().splitlines()) == 1


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a\x85b", "a\u2028b"])
def test_a_name_with_a_control_character_is_refused_at_once(broker: Broker, name: str) -> None:
    with pytest.raises(InvalidRequest, match="control"):
        broker.service(name)


def test_the_results_of_a_batch_are_a_sequence(broker: Broker) -> None:
    def work() -> None:
        with broker.service("double", batch=2) as service:
            batch = service.receive(timeout=60)
            for wrong in {"x": np.zeros(3)}, 5, (each for each in "ab"):
                with pytest.raises(InvalidRequest, match="sequence of results"):
                    batch.reply(wrong)
            batch.reply([{"x": 1}] * len(batch))

    with thread(work):
        assert broker.call("double", value(1), timeout=60) == {"x": 1}
