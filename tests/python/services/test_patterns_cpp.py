# SPDX-License-Identifier: Apache-2.0
"""Batches of requests, and results in order, in C++, with callers and workers in Python."""

import os
from pathlib import Path

import numpy as np
import pytest
from native import line, opened
from processes import ROOT, children

PROGRAM = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build/dev")) / "tests/integration/service_program"
LONG = 600  # seconds that no test waits


@pytest.fixture
def program(address, broker):
    """Starts the program in C++, which is open when this returns; it ends with the test."""
    with children(PROGRAM) as start:
        yield lambda *words: opened(start(address, broker.namespace, *words))


def test_a_server_in_cpp_answers_batches(broker, program, record):
    server = program("serve", "same", "batches", record)
    futures = [broker.submit("same", {"n": number, "x": np.full(2, number)}, timeout=LONG) for number in range(12)]
    answers = [future.result(120) for future in futures]
    assert [answer["n"] for answer in answers] == list(range(12))
    assert [answer["x"].tolist() for answer in answers] == [[number] * 2 for number in range(12)]
    assert [line(server) for _ in range(3)] == ["batch 4"] * 3


def test_cpp_orders_the_results_of_workers_in_python(broker, program, begin):
    """One of two workers is killed with frame 2 in its hands: it is told, as its frame is, and the others come in order."""
    ordered = program("reorder", "done", 20)
    work, last = broker.channel("work").open("sender"), broker.channel("done").open("sender")
    workers = [begin("worker.py") for _ in range(2)]
    assert [line(worker) for worker in workers] == ["open", "open"]
    for number in range(1, 9):
        work.send(np.full(2, number), timeout=60)
    work.close()
    killed, _ = sorted(workers, key=lambda worker: worker.wait(120))
    assert killed.returncode == -9
    last.close()
    said = [line(ordered) for _ in range(10)]
    assert [each for each in said if each.startswith("result")] == [f"result {2 * number}" for number in (1, *range(3, 9))]
    lost, gap, ended = [each for each in said if not each.startswith("result")]
    assert lost.startswith("SENDER_DIED the sender 'worker'")
    assert gap == (
        f"GAP frame 2 is missing, and their stream has ended: lost with 'worker' (process {killed.pid}); the next call goes on with frame 3"
    )
    assert ended.startswith("CHANNEL_ENDED ") and said[-1] == ended
    assert ordered.wait(120) == 0
