# SPDX-License-Identifier: Apache-2.0
"""Services: one answer or one error for each call, whichever process ends."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from processes import environment, start_daemon, stop_daemon

import arraybridge
from arraybridge import BrokerTimeout, CallCancelled, InvalidRequest, RequestFailed, ServerGone

LONG = 600  # seconds that no test waits: a call that ended at its timeout would not end


def request(number):
    return {"n": number, "x": np.full(4, number)}


def begun(record):
    """The numbers of the requests that servers have begun, in order."""
    return [int(line.split()[0]) for line in record.read_text().splitlines()] if record.exists() else []


def line(process):
    return process.stdout.readline().split()


def until(holds):
    """Waits for what another process does."""
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, "it did not happen within two minutes"
        time.sleep(0.01)


def caller(address, broker, code):
    """A process that calls, and is killed by the test."""
    start = (
        "import arraybridge, numpy as np, os, sys, time\nbroker = arraybridge.Broker(sys.argv[1], namespace=sys.argv[2], start='never')\n"
    )
    command = [sys.executable, "-c", start + code, address, broker.namespace]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())


@pytest.fixture
def alone(tmp_path):
    """The directory of a broker of the test's own: what other tests have left is not counted."""
    directory = str(tmp_path / "alone")
    daemon = start_daemon(directory, "--log-level", "warn")
    yield directory
    assert stop_daemon(daemon) == 0


@pytest.mark.filterwarnings("error::arraybridge.CopyWarning")
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_call_is_answered(broker, serve, framework):
    server = serve("torch")
    for number in range(3):
        answer = broker.call("double", request(number), framework, timeout=60)
        assert arraybridge.detect_memory_type(answer["x"]) == framework
        assert answer["x"].tolist() == [2 * number] * 4
        assert answer["pid"] == server.pid


def test_a_request_and_an_answer_without_arrays(broker):
    def serve():
        with broker.service("name") as service:
            for request in service.requests(timeout=60):
                request.reply({"hello": request.value["name"]})
                break

    server = threading.Thread(target=serve)
    server.start()
    assert broker.call("name", {"name": "you"}, timeout=60) == {"hello": "you"}
    server.join()


def test_a_server_answers_with_what_it_got_without_a_copy(broker):
    """The answer is a forward of the request's bytes."""
    seen = []

    def serve():
        with broker.service("same") as service:
            for request in service.requests(timeout=60):
                seen.append(request.value)
                request.reply(request.value)
                break

    before = broker.stats()["forwards_total"]
    server = threading.Thread(target=serve)
    server.start()
    array = broker.empty((1 << 16,), "uint8")
    array[:] = 7
    answer = broker.call("same", array, timeout=60)
    server.join()
    assert answer.sum() == 7 << 16
    assert broker.stats()["forwards_total"] > before or np.shares_memory(answer, seen[0])


def test_several_servers_share_the_requests(broker, serve, record):
    pids = {serve().pid, serve().pid}
    answers = [broker.submit("double", request(number), timeout=LONG) for number in range(200)]
    assert [future.result(120)["n"] for future in answers] == list(range(200))
    assert {future.result()["pid"] for future in answers} == pids
    assert sorted(begun(record)) == list(range(200))


def test_a_server_that_fails_says_why(broker, serve):
    serve("fail")
    with pytest.raises(RequestFailed, match="number 3 is not for me"):
        broker.call("double", request(3), timeout=60)


def test_a_request_without_an_answer_fails(broker, serve):
    serve("silent")
    with pytest.raises(RequestFailed, match="without an answer"):
        broker.call("double", request(3), timeout=60)


def test_a_request_that_the_server_cannot_read_fails(broker):
    taken = []

    def serve():
        with broker.service("torch") as service:
            for request in service.requests("torch", timeout=60):
                taken.append(request.value)
                request.reply(request.value)
                break

    server = threading.Thread(target=serve)
    server.start()
    with pytest.raises(RequestFailed, match="could not read it: .*dtype"):
        broker.call("torch", np.zeros(3, "M8[s]"), timeout=60)
    assert broker.call("torch", np.ones(3), timeout=60).tolist() == [1, 1, 1]
    server.join()
    assert len(taken) == 1


def test_a_killed_server_is_told_at_once(broker, serve, record):
    server = serve("hold")
    future = broker.submit("double", request(1), timeout=LONG)
    assert line(server) == ["holds", "1"]
    server.kill()
    with pytest.raises(ServerGone, match=r"'server-hold' \(process \d+\), ended with the request in its hands") as told:
        future.result(120)
    assert told.value.process_id == server.pid
    assert told.value.client == "server-hold"
    serve()
    assert broker.call("double", request(2), timeout=60)["n"] == 2
    assert begun(record) == [1, 2]


def test_only_the_request_in_its_hands_is_lost_with_a_server(broker, serve, record):
    server = serve("hold")
    futures = [broker.submit("double", request(number), timeout=LONG) for number in range(8)]
    assert line(server) == ["holds", "0"]
    server.kill()
    serve()
    with pytest.raises(ServerGone):
        futures[0].result(120)
    assert [future.result(120)["n"] for future in futures[1:]] == list(range(1, 8))
    assert sorted(begun(record)) == list(range(8))


def test_with_retry_the_next_server_gets_the_request(broker, serve, record):
    server = serve("retry-hold")
    future = broker.submit("double", request(1), timeout=LONG)
    assert line(server) == ["holds", "1"]
    server.kill()
    other = serve("retry")
    assert future.result(120)["pid"] == other.pid
    assert begun(record) == [1, 1]


def test_a_ticket_is_lost_with_a_server_and_the_request_is_not(broker, serve, record):
    """The server has taken the ticket and has not asked for the request."""
    server = serve("ticket")
    future = broker.submit("double", request(1), timeout=LONG)
    assert line(server) == ["ticket"]
    server.kill()
    other = serve()
    assert future.result(120)["pid"] == other.pid
    assert begun(record) == [1]


def test_an_answer_that_was_sent_before_the_server_left_arrives(broker, serve):
    """Meanwhile another server is killed, so the caller examines all servers; one that has left must not take its answer along."""
    for _ in range(4):
        killed, left = serve("hold"), serve("once")
        futures = [broker.submit("double", request(number), timeout=LONG) for number in range(2)]
        assert line(killed)[0] == "holds"
        killed.kill()
        assert sorted(type(future.exception(120)).__name__ for future in futures) == ["NoneType", "ServerGone"]
        assert left.wait() == 0


def test_a_server_that_leaves_in_order(broker, serve, record):
    """Its `with` block ends with one request in its hands, and others that wait."""
    server = serve("leave")
    futures = [broker.submit("double", request(number), timeout=LONG) for number in range(4)]
    assert line(server) == ["leaves", "0"]
    with pytest.raises(ServerGone):
        futures[0].result(120)
    assert server.wait() == 0
    serve()
    assert [future.result(120)["n"] for future in futures[1:]] == [1, 2, 3]
    assert begun(record) == [0, 1, 2, 3]


def test_a_killed_caller_is_told_to_the_server(address, broker, serve):
    server = serve("cancel")
    process = caller(address, broker, "broker.call('double', {'n': 1, 'x': np.ones(3)})")
    assert line(server) == ["holds", str(process.pid)]
    process.kill()
    process.wait()
    assert line(server) == ["cancelled", str(process.pid)]


def test_a_request_of_a_killed_caller_is_not_executed(address, broker, serve, record):
    """It is killed while its ticket waits."""
    holder = serve("cancel")
    first = broker.submit("double", request(0), timeout=LONG)
    assert line(holder)[0] == "holds"
    process = caller(address, broker, "f = broker.submit('double', {'n': 1, 'x': np.ones(3)})\nprint('sent', flush=True)\nf.result()")
    assert line(process) == ["sent"]
    process.kill()
    process.wait()
    second = broker.submit("double", request(2), timeout=LONG)
    first.cancel()
    assert line(holder)[0] == "cancelled"
    assert line(holder)[0] == "holds"
    second.cancel()
    assert line(holder)[0] == "cancelled"
    assert begun(record) == [0, 2]


def test_a_caller_that_times_out_is_told_to_the_server(broker, serve):
    server = serve("cancel")
    with pytest.raises(BrokerTimeout, match="has not answered within 0.5 s: 'server-cancel'") as told:
        broker.call("double", request(1), timeout=0.5)
    assert told.value.reason == "NOT_ANSWERED"
    assert line(server)[0] == "holds"
    assert line(server)[0] == "cancelled"


def test_a_request_whose_time_is_over_is_not_executed(broker, serve, record):
    future = broker.submit("double", request(1), timeout=0.05)
    with pytest.raises(BrokerTimeout, match="no server of service 'double' has taken the request within 0.05 s"):
        future.result(120)
    with pytest.raises(BrokerTimeout) as told:
        broker.call("double", request(2), timeout=0.05)
    assert told.value.reason == "NOT_TAKEN"
    serve()
    assert broker.call("double", request(3), timeout=60)["n"] == 3
    assert begun(record) == [3]


def test_a_cancelled_future_takes_its_request_back(broker, serve, record):
    future = broker.submit("double", request(1))
    assert future.cancel()
    serve()
    assert broker.call("double", request(2), timeout=60)["n"] == 2
    assert begun(record) == [2]


def test_requests_wait_for_room(alone, serve, record):
    server = serve("small", at=alone)  # queue=2
    os.kill(server.pid, signal.SIGSTOP)
    with arraybridge.Broker(alone, start="never") as broker:
        try:
            futures = [broker.submit("double", request(number), timeout=LONG) for number in range(20)]
            assert not any(future.done() for future in futures)
            assert broker.stats()["queued_shares"] <= 2
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert [future.result(120)["n"] for future in futures] == list(range(20))
    assert sorted(begun(record)) == list(range(20))


def test_servers_state_one_queue(broker):
    with broker.service("double", queue=2), pytest.raises(InvalidRequest, match="queue=3 of service 'double' is refused.*state one queue="):
        broker.service("double", queue=3).open()


def test_an_event_loop_calls(broker, serve):
    serve()

    async def main():
        answers = await asyncio.gather(*(broker.acall("double", request(number), "torch", timeout=60) for number in range(20)))
        return [int(answer["x"][0]) for answer in answers]

    assert asyncio.run(main()) == [2 * number for number in range(20)]


def test_a_cancelled_task_says_what_became_of_its_call(broker, serve, record):
    async def cancelled(number, taken):
        task = asyncio.create_task(broker.acall("double", request(number)))
        await asyncio.sleep(0)
        while taken and number not in begun(record):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(CallCancelled) as told:
            await task
        return told.value.outcome

    assert asyncio.run(cancelled(1, taken=False)).cancelled()  # there is no server
    serve("cancel")
    assert asyncio.run(cancelled(2, taken=True)).result(120)["n"] == 2
    assert begun(record) == [2]


def test_a_forked_child_calls(broker, serve):
    serve()
    assert broker.call("double", request(1), timeout=60)["n"] == 1
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if broker.call("double", request(2), timeout=60)["x"].tolist() == [4] * 4 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert broker.call("double", request(3), timeout=60)["n"] == 3


def test_nothing_is_left(alone, serve):
    """Channels, shares, leases and memory are as before when servers and callers have ended, however they end."""
    keys = ("channels", "shares", "queued_shares", "leases", "pinned_bytes", "arenas", "charged_bytes")
    broker = arraybridge.Broker(alone, start="never")
    before = {key: broker.stats()[key] for key in keys}
    with arraybridge.Broker(alone, start="never") as other:
        killed, left = serve("hold", at=alone), serve("once", at=alone)
        futures = [other.submit("double", request(number), timeout=LONG) for number in range(2)]
        assert line(killed)[0] == "holds"
        killed.kill()
        outcomes = [future.exception(120) for future in futures]
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "ServerGone"]
        assert left.wait() == 0
        process = caller(alone, broker, "broker.submit('double', {'n': 1, 'x': np.ones(3)})\nprint('sent', flush=True)\ntime.sleep(600)")
        assert line(process) == ["sent"]
        process.kill()
        process.wait()
        server = serve(at=alone)
        assert other.call("double", request(5), timeout=60)["n"] == 5
        del futures, outcomes
    server.kill()
    server.wait()
    until(lambda: {key: broker.stats()[key] for key in keys} == before)
    broker.close()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda broker: broker.call("", 1), "a service's name must be a non-empty str"),
        (lambda broker: broker.call("x" * 129, 1), "a service's name has 129 bytes, the most is 128"),
        (lambda broker: broker.service(3), "a service's name must be a non-empty str"),
        (lambda broker: broker.service("x", retry=1), "retry must be True or False"),
        (lambda broker: broker.service("x", queue=0), "queue must be a number of requests"),
        (lambda broker: broker.service("x", batch=0), "batch must be a number of requests"),
        (lambda broker: broker.service("x", within=-1), "within"),
        (lambda broker: broker.service("x", within=1), "pass batch= too"),
        (lambda broker: broker.call("x", np.ones(3), timeout=-1), "timeout"),
    ],
)
def test_what_is_refused(broker, call, words):
    with pytest.raises(InvalidRequest, match=words):
        call(broker)


def test_a_request_is_answered_once(broker):
    def serve():
        with broker.service("once") as service:
            for request in service.requests(timeout=60):
                with pytest.raises(InvalidRequest, match="a text that tells"):
                    request.fail("")
                assert request.reply(request.value)
                with pytest.raises(InvalidRequest, match="answered once"):
                    request.reply(request.value)
                assert "answered" in repr(request)
                return "served"

    result = []
    server = threading.Thread(target=lambda: result.append(serve()))
    server.start()
    assert broker.call("once", np.ones(3), timeout=60).sum() == 3
    server.join()
    assert result == ["served"]
