# SPDX-License-Identifier: Apache-2.0
"""Services in C: a program in C is the caller or the server, the other side is in Python, and either may be killed."""

import os
import random
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from native import begun, line, lines, opened, request
from processes import ROOT, children

import arraybridge
from arraybridge import BrokerTimeout, RequestFailed, ServerGone

LIBRARY = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build/dev")) / "client"
LONG = 600  # seconds that no test waits
LONG_MS = 1000 * LONG
KILLS = 200 if os.environ.get("ARRAYBRIDGE_LONG") else 20


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The program, of the language that the headers state."""
    made = tmp_path_factory.mktemp("c") / "service_program"
    source = Path(__file__).with_name("service_program.c")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT / 'client/include'}"]
    libraries = [f"-L{LIBRARY}", "-larraybridge", f"-Wl,-rpath,{LIBRARY}"]
    done = subprocess.run(["cc", *flags, str(source), "-o", str(made), *libraries], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture
def program(compiled, address, broker):
    """Starts the program; it ends with the test."""
    with children(compiled) as start:
        yield lambda role, *words: start(address, broker.namespace, role, "double", *words)


@pytest.fixture
def serve_c(program, record):
    """Starts a server in C, which is open when this returns."""

    def start(kind="double"):
        return opened(program("serve", kind, record))

    return start


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_server_in_c_answers_python(broker, serve_c, record, framework):
    serve_c()
    for number in range(3):
        answer = broker.call("double", request(number), framework, timeout=60)
        assert answer["n"] == number
        assert arraybridge.detect_memory_type(answer["x"]) == framework
        assert answer["x"].tolist() == [2 * number] * 4
    futures = [broker.submit("double", request(number), timeout=LONG) for number in range(3, 60)]
    assert [future.result(120)["n"] for future in futures] == list(range(3, 60))
    assert sorted(begun(record)) == list(range(60))


def test_a_server_in_python_answers_c(program, serve, record):
    serve()
    assert lines(program("call", 0, 59, LONG_MS)) == [f"answer {number} {8 * number}" for number in range(60)]
    assert sorted(begun(record)) == list(range(60))


def test_a_server_in_c_says_why_there_is_no_result(broker, serve_c):
    serve_c("fail")
    with pytest.raises(RequestFailed, match="number 3 is not for me"):
        broker.call("double", request(3), timeout=60)


def test_a_request_that_a_server_in_c_drops_fails(broker, serve_c):
    serve_c("silent")
    with pytest.raises(RequestFailed, match="went on without an answer"):
        broker.call("double", request(3), timeout=60)


def test_a_server_in_python_tells_c_why_there_is_no_result(program, serve):
    serve("fail")
    said = "the server of service 'double' has no result: number 3 is not for me"
    assert lines(program("call", 3, 3, LONG_MS)) == [f"REQUEST_FAILED 3 {said}"]


def test_a_killed_server_in_c_is_told_at_once(broker, serve_c, serve, record):
    server = serve_c("hold")
    future = broker.submit("double", request(1), timeout=LONG)
    assert line(server) == "holds 1"
    server.kill()
    with pytest.raises(ServerGone, match=r"'in-c' \(process \d+\), ended with the request in its hands") as told:
        future.result(120)
    assert told.value.process_id == server.pid
    serve()
    assert broker.call("double", request(2), timeout=60)["n"] == 2
    assert begun(record) == [1, 2]


@pytest.mark.parametrize("language", ["python", "c"])
def test_c_is_told_at_once_that_a_server_was_killed(program, serve, serve_c, record, language):
    server = (serve if language == "python" else serve_c)("hold")
    caller = program("call", 1, 2, LONG_MS)
    assert line(server) == "holds 1"
    server.kill()
    (serve_c if language == "python" else serve)()
    first, second = lines(caller)
    assert first.startswith("SERVER_GONE 1 the server of service 'double', ")
    assert f"(process {server.pid}), ended with the request in its hands" in first
    assert second == "answer 2 16"
    assert begun(record) == [1, 2]


def test_with_retry_the_next_server_answers_c(program, serve, serve_c, record):
    server = serve_c("retry-hold")
    caller = program("call", 1, 1, LONG_MS)
    assert line(server) == "holds 1"
    server.kill()
    serve("retry")
    assert lines(caller) == ["answer 1 8"]
    assert begun(record) == [1, 1]


def test_a_server_in_c_sees_that_a_caller_was_killed(program, serve_c):
    server = serve_c("cancel")
    caller = program("call", 1, 1, LONG_MS)
    assert line(server) == f"holds 1 of {caller.pid}"
    caller.kill()
    assert line(server) == "cancelled 1"


def test_a_call_of_c_that_times_out_is_cancelled(program, serve):
    server = serve("cancel")
    (said,) = lines(program("call", 1, 1, 500))
    assert said.startswith("NOT_ANSWERED 1 service 'double' has not answered within 500 ms: ")
    assert line(server).startswith("holds")
    assert line(server).startswith("cancelled")


def test_a_cancelled_request_in_c_times_out_in_python(broker, serve_c):
    server = serve_c("cancel")
    with pytest.raises(BrokerTimeout, match=r"has not answered within 0.5 s: 'in-c'"):
        broker.call("double", request(1), timeout=0.5)
    assert line(server).startswith("holds 1")
    assert line(server) == "cancelled 1"


def test_a_request_of_c_whose_time_is_over_is_not_executed(broker, program, serve_c, record):
    (said,) = lines(program("call", 1, 1, 50))
    assert said.startswith("NOT_TAKEN 1 no server of service 'double' has taken the request within 50 ms")
    serve_c()
    assert broker.call("double", request(2), timeout=60)["n"] == 2
    assert begun(record) == [2]


def test_c_waits_for_a_service_and_a_channel(broker, program, record):
    server = program("select", "side", record)
    assert line(server) == f"open {server.pid}"
    channel = broker.channel("side")
    for number in range(20):
        channel.send([np.zeros(2)] * (number % 3 + 1), timeout=60)
        assert broker.call("double", request(number), timeout=60)["n"] == number
        assert line(server) == f"array of {number % 3 + 1}"
    assert begun(record) == list(range(20))
    channel.close()
    assert line(server) == "ended"
    assert server.wait(120) == 0


def test_random_kills_of_servers_in_c(program, serve, serve_c, record):
    """Each call of C has one outcome, and nothing is executed twice."""
    chance = random.Random(os.environ.get("ARRAYBRIDGE_SEED", "47"))
    servers = [serve_c(), serve_c(), serve()]
    caller = program("call", 0, 10_000_000, LONG_MS)
    outcomes = []
    for number in range(KILLS):
        outcomes += [line(caller) for _ in range(chance.choice((1, 5, 50)))]
        victim = chance.randrange(3)
        servers[victim].kill()
        servers[victim] = serve() if number % 5 == 0 else serve_c()
    caller.kill()
    executed = Counter(begun(record))
    assert [number for number, times in executed.items() if times > 1] == []
    assert [int(outcome.split()[1]) for outcome in outcomes] == list(range(len(outcomes)))
    kinds = Counter(outcome.split()[0] for outcome in outcomes)
    assert set(kinds) <= {"answer", "SERVER_GONE"}, kinds
    assert kinds["answer"] >= KILLS


def test_answers_of_several_items_in_c(broker, program, serve_c):
    server = serve_c("items")
    assert [item["n"] for item in broker.call("double", request(30), timeout=LONG, stream=True)] == list(range(30))
    few = [*(f"item {n} {4 * n}" for n in range(3)), "ANSWERS_ENDED"]
    many = [f"item {n} {4 * n}" for n in range(10)]
    assert lines(program("items", 3, 3, LONG_MS)) == few
    assert lines(program("items", 50, 50, LONG_MS)) == many
    assert line(server) == "cancelled"
    with pytest.raises(RequestFailed, match="pass stream=True"):
        broker.call("double", request(3), timeout=60)
