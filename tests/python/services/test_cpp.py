# SPDX-License-Identifier: Apache-2.0
"""Services between C++ and Python: each side serves the other, and one answer or one error comes, whichever process ends."""

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from native import begun, line, lines, opened, request, shown
from processes import ROOT, children

import arraybridge
from arraybridge import BrokerTimeout, RequestFailed, ServerGone

PROGRAM = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build/dev")) / "tests/integration/service_program"
LONG = 600  # seconds that no test waits
LONG_MS = 1000 * LONG
KILLS = 200 if os.environ.get("ARRAYBRIDGE_LONG") else 20


@pytest.fixture
def program(address, broker):
    """Starts the program in C++; it ends with the test."""
    with children(PROGRAM) as start:
        yield lambda role, *words: start(address, broker.namespace, role, "double", *words)


@pytest.fixture
def serve_cpp(program, record):
    """Starts a server in C++, which is open when this returns."""

    def start(kind="double"):
        return opened(program("serve", kind, record))

    return start


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_server_in_cpp_answers_python(broker, serve_cpp, record, framework):
    serve_cpp()
    for number in range(3):
        answer = broker.call("double", request(number), framework, timeout=60)
        assert answer["n"] == number
        assert arraybridge.detect_memory_type(answer["x"]) == framework
        assert answer["x"].tolist() == [2 * number] * 4
    futures = [broker.submit("double", request(number), timeout=LONG) for number in range(3, 100)]
    assert [future.result(120)["n"] for future in futures] == list(range(3, 100))
    assert sorted(begun(record)) == list(range(100))


@pytest.mark.parametrize("role", ["call", "submit"])
def test_a_server_in_python_answers_cpp(program, serve, record, role):
    serve()
    assert lines(program(role, 0, 99, LONG_MS)) == [f"answer {number} {8 * number}" for number in range(100)]
    assert sorted(begun(record)) == list(range(100))


@pytest.mark.parametrize("role", ["call", "submit"])
def test_servers_of_both_languages_share_the_requests_of_both(broker, program, serve, serve_cpp, record, role):
    serve()
    serve_cpp()
    caller = program(role, 0, 99, LONG_MS)
    futures = [broker.submit("double", request(number), timeout=LONG) for number in range(100, 200)]
    assert lines(caller) == [f"answer {number} {8 * number}" for number in range(100)]
    assert [future.result(120)["n"] for future in futures] == list(range(100, 200))
    assert sorted(begun(record)) == list(range(200))


def test_a_server_in_cpp_says_why_there_is_no_result(broker, serve_cpp):
    serve_cpp("fail")
    with pytest.raises(RequestFailed, match="number 3 is not for me"):
        broker.call("double", request(3), timeout=60)


def test_a_request_that_a_server_in_cpp_drops_fails(broker, serve_cpp):
    serve_cpp("silent")
    with pytest.raises(RequestFailed, match="went on without an answer"):
        broker.call("double", request(3), timeout=60)


def test_a_server_in_python_tells_cpp_why_there_is_no_result(program, serve):
    serve("fail")
    said = "the server of service 'double' has no result: number 3 is not for me"
    assert lines(program("call", 3, 3, LONG_MS)) == [f"REQUEST_FAILED 3 {said}"]


def test_a_killed_server_in_cpp_is_told_at_once(broker, serve_cpp, serve, record):
    server = serve_cpp("hold")
    future = broker.submit("double", request(1), timeout=LONG)
    assert line(server) == "holds 1"
    server.kill()
    with pytest.raises(ServerGone, match=r"'in-c\+\+' \(process \d+\), ended with the request in its hands") as told:
        future.result(120)
    assert told.value.process_id == server.pid
    serve()
    assert broker.call("double", request(2), timeout=60)["n"] == 2
    assert begun(record) == [1, 2]


@pytest.mark.parametrize("role", ["call", "submit"])
@pytest.mark.parametrize("language", ["python", "cpp"])
def test_cpp_is_told_at_once_that_a_server_was_killed(program, serve, serve_cpp, record, role, language):
    server = (serve if language == "python" else serve_cpp)("hold")
    caller = program(role, 1, 2, LONG_MS)
    assert line(server) == "holds 1"
    server.kill()
    (serve_cpp if language == "python" else serve)()
    first, second = lines(caller)
    assert first.startswith("SERVER_GONE 1 the server of service 'double', ")
    assert f"(process {server.pid}), ended with the request in its hands" in first
    assert second == "answer 2 16"
    assert begun(record) == [1, 2]


@pytest.mark.parametrize("language", ["python", "cpp"])
def test_with_retry_the_next_server_answers_cpp(program, serve, serve_cpp, record, language):
    server = (serve if language == "python" else serve_cpp)("retry-hold")
    caller = program("call", 1, 1, LONG_MS)
    assert line(server) == "holds 1"
    server.kill()
    serve("retry")
    assert lines(caller) == ["answer 1 8"]
    assert begun(record) == [1, 1]


@pytest.mark.parametrize("role", ["call", "submit"])
def test_a_ticket_of_cpp_is_lost_with_a_server_and_the_request_is_not(program, serve, serve_cpp, record, role):
    """The server has taken the ticket and has not asked for the request."""
    server = serve("ticket")
    caller = program(role, 1, 1, LONG_MS)
    assert line(server) == "ticket"
    server.kill()
    serve_cpp()
    assert lines(caller) == ["answer 1 8"]
    assert begun(record) == [1]


def test_a_server_in_cpp_sees_that_a_caller_was_killed(program, serve_cpp):
    server = serve_cpp("cancel")
    caller = program("call", 1, 1, LONG_MS)
    assert line(server) == f"holds 1 of {caller.pid}"
    caller.kill()
    assert line(server) == "cancelled 1"


@pytest.mark.parametrize("language", ["python", "cpp"])
def test_a_call_of_cpp_that_times_out_is_cancelled(program, serve, serve_cpp, language):
    server = (serve if language == "python" else serve_cpp)("cancel")
    (said,) = lines(program("call", 1, 1, 500))
    assert said.startswith("NOT_ANSWERED 1 service 'double' has not answered within 500 ms: ")
    assert line(server).startswith("holds")
    assert line(server).startswith("cancelled")


@pytest.mark.parametrize("role", ["call", "submit"])
def test_a_request_of_cpp_whose_time_is_over_is_not_executed(broker, program, serve_cpp, record, role):
    (said,) = lines(program(role, 1, 1, 50))
    assert said.startswith("NOT_TAKEN 1 no server of service 'double' has taken the request within 50 ms")
    serve_cpp()
    assert broker.call("double", request(2), timeout=60)["n"] == 2
    assert begun(record) == [2]


def test_a_cancelled_request_in_cpp_times_out_in_python(broker, serve_cpp):
    server = serve_cpp("cancel")
    with pytest.raises(BrokerTimeout, match=r"has not answered within 0.5 s: 'in-c\+\+'"):
        broker.call("double", request(1), timeout=0.5)
    assert line(server).startswith("holds 1")
    assert line(server) == "cancelled 1"


def test_random_kills_of_both_languages(program, serve, serve_cpp, record):
    """Each call has one outcome, and nothing is executed twice."""
    chance = random.Random(os.environ.get("ARRAYBRIDGE_SEED", "47"))
    many = 10_000_000
    servers = [serve_cpp(), serve_cpp(), serve()]
    callers = [program(role, many * place, many * place + many, LONG_MS) for place, role in enumerate(["call", "call"])]
    told = [[], []]
    for number in range(KILLS):
        for caller, outcomes in zip(callers, told, strict=True):
            outcomes += [line(caller) for _ in range(chance.choice((1, 5, 50)))]
        victim = chance.randrange(3)
        os.kill(servers[victim].pid, signal.SIGKILL)
        servers[victim] = serve() if number % 5 == 0 else serve_cpp()
    for caller in callers:
        caller.kill()
    executed = Counter(begun(record))
    assert [number for number, times in executed.items() if times > 1] == []
    for place, outcomes in enumerate(told):
        assert [int(outcome.split()[1]) for outcome in outcomes] == list(range(many * place, many * place + len(outcomes)))
        kinds = Counter(outcome.split()[0] for outcome in outcomes)
        assert set(kinds) <= {"answer", "SERVER_GONE"}, kinds
        assert kinds["answer"] >= KILLS
        assert {int(outcome.split()[1]) for outcome in outcomes if outcome.startswith("answer")} <= set(executed)


def serve_sequence(broker, seen):
    """A server in Python: so many items as the request says, and one more as its end."""
    with broker.service("double") as service:
        given = service.receive(timeout=60)
        for number in range(given.value["n"]):
            if not given.stream(request(number)):
                seen.append(number)
                return
        given.reply(request(given.value["n"]))


@pytest.mark.parametrize("number", [0, 3, 50])
def test_cpp_takes_the_items_of_a_server_in_python(broker, program, number):
    server = threading.Thread(target=serve_sequence, args=(broker, []))
    server.start()
    expected = [f"item {n} {4 * n}" for n in range(number + 1)] + [f"end {number + 1}"]
    assert lines(program("stream", number, 1000, LONG_MS)) == expected
    server.join(60)


@pytest.mark.parametrize("number", [0, 3, 50])
def test_python_and_cpp_take_the_items_of_a_server_in_cpp(broker, program, serve_cpp, number):
    serve_cpp("sequence")
    items = list(broker.call("double", request(number), timeout=LONG, stream=True))
    assert [item["n"] for item in items] == list(range(number))
    assert [int(item["x"].sum()) for item in items] == [4 * n for n in range(number)]
    expected = [f"item {n} {4 * n}" for n in range(number)] + [f"end {number}"]
    assert lines(program("stream", number, 1000, LONG_MS)) == expected


def test_a_server_in_python_sees_that_cpp_takes_no_further_items(broker, program):
    seen = []
    server = threading.Thread(target=serve_sequence, args=(broker, seen))
    server.start()
    assert lines(program("stream", 1000, 5, LONG_MS))[-1] == "left"
    server.join(60)
    assert seen and 5 <= seen[0] <= 20


def test_a_server_in_cpp_sees_that_no_further_items_are_taken(broker, program, serve_cpp):
    server = serve_cpp("sequence")
    for take in (
        lambda: lines(program("stream", 1000, 5, LONG_MS)),
        lambda: next(broker.call("double", request(1000), timeout=LONG, stream=True)),
    ):
        take()
        words = line(server).split()
        assert words[:2] == ["cancelled", "after"] and int(words[2]) <= 20


def test_a_server_in_cpp_waits_for_a_slow_reader(broker, serve_cpp):
    server = serve_cpp("sequence")
    answers = broker.call("double", request(30), timeout=LONG, stream=True)
    assert next(answers)["n"] == 0
    time.sleep(1)
    assert [item["n"] for item in answers] == list(range(1, 30))
    assert line(server) == "sent 30"


def test_the_items_before_the_end_of_a_server_come(program, serve_cpp):
    server = serve_cpp("hold-sequence")
    caller = program("stream", 6, 1000, LONG_MS)
    assert line(server) == "sent 6"
    server.kill()
    found = lines(caller)
    assert found[:6] == [f"item {n} {4 * n}" for n in range(6)] and found[6].startswith("SERVER_GONE ")


def test_the_time_of_a_whole_sequence_is_limited(program, serve_cpp):
    serve_cpp("hold-sequence")
    assert lines(program("stream", 2, 1000, 1500))[2].startswith("NOT_ANSWERED ")


def test_a_caller_of_one_answer_gets_no_items(broker, serve_cpp):
    serve_cpp("sequence")
    with pytest.raises(RequestFailed, match="pass stream=True"):
        broker.call("double", request(3), timeout=60)


def answered_soon(broker):
    """Calls of another process, while one stands still."""
    begun = time.monotonic()
    for number in range(100, 112):
        assert broker.call("double", request(number), timeout=60)["n"] == number
    assert time.monotonic() - begun < 30


def test_a_server_in_cpp_does_not_wait_for_a_caller_that_stands_still(broker, begin, serve_cpp):
    slow = begin("many.py", "double", 30)
    assert line(slow) == "asked"
    os.kill(slow.pid, signal.SIGSTOP)
    serve_cpp()
    answered_soon(broker)
    os.kill(slow.pid, signal.SIGCONT)
    assert line(slow).split() == ["answered", *map(str, range(30))]


def test_a_caller_in_cpp_that_stood_still_loses_nothing(broker, program, serve):
    slow = program("submit", 0, 29, LONG_MS)
    time.sleep(1)
    os.kill(slow.pid, signal.SIGSTOP)
    serve()
    answered_soon(broker)
    os.kill(slow.pid, signal.SIGCONT)
    assert lines(slow) == [f"answer {number} {8 * number}" for number in range(30)]


def test_a_request_of_cpp_that_ends_its_servers_ends_three(program, serve, record):
    for _ in range(5):
        serve("retry-die")
    assert "2 others before" in " ".join(lines(program("call", 1, 1, LONG_MS)))
    assert len(begun(record)) == 3


def test_the_figures_of_a_server_in_cpp_are_shown(address, broker, serve_cpp):
    server = serve_cpp()
    for number in range(50):
        broker.call("double", request(number), timeout=60)
    (told,) = shown(address, broker, "show", "double")["server"]
    assert told["process_id"] == server.pid and 1 <= told["requests"] <= 50 and told["failed"] == 0
    assert 0 < told["p50_us"] <= told["p99_us"] < 60e6
