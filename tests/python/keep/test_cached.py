# SPDX-License-Identifier: Apache-2.0
"""cached: one process of all makes a share, also when makers die, fail or stand still."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from processes import environment

import arraybridge
from arraybridge import Broker, BrokerTimeout, InvalidRequest, OutOfMemory, UnsupportedArray

# Says "makes PID" when it begins to make, and makes when a line arrives. `exit`, `raise`: instead of a result.
MAKER = """
import os, sys
import numpy as np
from arraybridge import Broker
broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")
def make():
    os.write(1, f"makes {os.getpid()}\\n".encode())
    word = sys.stdin.readline().strip()
    if word == "exit":
        os._exit(3)
    if word == "raise":
        raise ValueError("no data")
    return np.full(1000, 7.0)
try:
    found = broker.cached("made", make)
except ValueError as error:
    os.write(1, f"raised {error}\\n".encode())
else:
    os.write(1, f"has {found.sum():.0f} {broker.get('made', info=True).share.generation}\\n".encode())
"""
Process = subprocess.Popen[str]


@pytest.fixture
def processes(broker: Broker) -> Iterator[list[Process]]:
    made: list[Process] = []
    yield made
    for each in made:
        each.kill()
        each.communicate()


def started(broker: Broker, processes: list[Process], code: str = MAKER) -> Process:
    command = [sys.executable, "-c", code, broker.address, broker.namespace]
    made = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    processes.append(made)
    return made


def said(process: Process) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: Process, word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def test_what_is_missing_is_made_once_and_then_found(broker: Broker) -> None:
    calls: list[int] = []

    def make() -> np.ndarray:
        calls.append(1)
        return np.arange(6.0).reshape(2, 3)

    for _ in range(3):
        found = broker.cached("features", make)
        assert found.tolist() == [[0, 1, 2], [3, 4, 5]] and not found.flags.writeable
    assert len(calls) == 1
    broker.withdraw("features")
    broker.cached("features", make)
    assert len(calls) == 2


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
def test_every_framework_gets_what_numpy_made(broker: Broker, framework: str) -> None:
    for _ in range(2):
        found = broker.cached("x", lambda: np.arange(4.0, dtype="f4"), framework)
        assert arraybridge.detect_memory_type(found) == framework and np.asarray(found).tolist() == [0, 1, 2, 3]


def test_trees_and_tables_are_made_too(broker: Broker) -> None:
    pandas = pytest.importorskip("pandas")
    tree = broker.cached("tree", lambda: {"mean": np.ones(3), "classes": ["a", "b"]})
    assert tree["mean"].tolist() == [1, 1, 1] and tree["classes"] == ["a", "b"]
    frame = broker.cached("frame", lambda: pandas.DataFrame({"x": [1, 2], "name": ["a", None]}), "pandas")
    assert frame["x"].tolist() == [1, 2] and frame["name"].isna().tolist() == [False, True]


def test_options_of_get_and_a_lifetime_hold(broker: Broker) -> None:
    found = broker.cached("own", lambda: np.ones(3), copy=True)
    found += 1
    assert broker.cached("own", lambda: np.zeros(3)).tolist() == [1, 1, 1]
    got = broker.cached("told", lambda: np.ones(3), info=True, lifetime=600)
    assert got.share.name == "told" and got.array.tolist() == [1, 1, 1]


def test_of_many_processes_one_makes(broker: Broker, processes: list[Process]) -> None:
    together = [started(broker, processes) for _ in range(6)]
    lines: list[str] = []
    lock, first = threading.Lock(), threading.Event()

    def read(each: Process) -> None:
        for line in each.stdout or ():
            with lock:
                lines.append(line.strip())
            if line.startswith("makes"):
                tell(each, "go")
                first.set()

    readers = [threading.Thread(target=read, args=(each,)) for each in together]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert sum(line.startswith("makes") for line in lines) == 1
    share = broker.get("made", info=True).share
    assert lines.count(f"has 7000 {share.generation}") == 6


@pytest.mark.parametrize("ends", ["exit", "kill", "raise"])
def test_the_next_one_makes_when_a_maker_ends_without_a_result(broker: Broker, processes: list[Process], ends: str) -> None:
    first = started(broker, processes)
    assert said(first) == f"makes {first.pid}"
    second = started(broker, processes)
    if ends == "kill":
        first.kill()
    else:
        tell(first, ends)
    assert said(second) == f"makes {second.pid}"
    tell(second, "go")
    assert said(second).startswith("has 7000 ")
    assert said(first) == ("raised no data" if ends == "raise" else "")


def test_a_wait_has_an_end_that_names_the_maker(broker: Broker, processes: list[Process]) -> None:
    first = started(broker, processes)
    assert said(first) == f"makes {first.pid}"
    with pytest.raises((BrokerTimeout, arraybridge.ShareNotFound), match=f"process {first.pid} .*has claimed its name"):
        broker.cached("made", lambda: np.zeros(3), wait=0.05)
    with pytest.raises((BrokerTimeout, arraybridge.ShareNotFound), match="has claimed its name"):
        broker.cached("made", lambda: np.zeros(3), wait=0)
    tell(first, "go")
    assert said(first).startswith("has")


def test_who_makes_a_share_can_be_asked(broker: Broker, processes: list[Process]) -> None:
    def nobody() -> np.ndarray:
        raise LookupError("nobody computes it")

    with pytest.raises(LookupError, match="nobody computes it"):
        broker.cached("made", nobody, wait=0)
    first = started(broker, processes)
    assert said(first) == f"makes {first.pid}"
    with pytest.raises(arraybridge.ShareNotFound, match=f"process {first.pid} .*has claimed its name"):
        broker.cached("made", nobody, wait=0)
    tell(first, "go")
    assert said(first).startswith("has")
    assert broker.cached("made", nobody, wait=0).sum() == 7000


def test_what_others_publish_meanwhile_is_what_all_get(broker: Broker) -> None:
    def overtaken() -> np.ndarray:
        with Broker(broker.address, namespace=broker.namespace, start="never") as other:
            other.put(np.ones(3), "raced")
        return np.zeros(3)

    assert broker.cached("raced", overtaken).tolist() == [1, 1, 1]


def test_a_maker_that_is_stopped_loses_its_turn(broker: Broker, processes: list[Process], monkeypatch: pytest.MonkeyPatch) -> None:
    short = MAKER.replace("broker =", "from arraybridge.broker.keep import caching\ncaching.STILL_S = 1.0\nbroker =")
    first = started(broker, processes, short)
    assert said(first) == f"makes {first.pid}"
    first.send_signal(signal.SIGSTOP)
    second = started(broker, processes, short)
    assert said(second) == f"makes {second.pid}"
    tell(second, "go")
    has = said(second)
    first.send_signal(signal.SIGCONT)
    tell(first, "go")
    assert has.startswith("has 7000 ") and said(first) == has


def test_threads_of_a_process_make_once(broker: Broker) -> None:
    calls: list[int] = []
    begun = threading.Event()
    go = threading.Event()

    def make() -> np.ndarray:
        calls.append(1)
        begun.set()
        go.wait()
        return np.ones(3)

    results: list[float] = []
    threads = [threading.Thread(target=lambda: results.append(broker.cached("t", make).sum())) for _ in range(8)]
    for thread in threads:
        thread.start()
    begun.wait()
    go.set()
    for thread in threads:
        thread.join()
    assert results == [3.0] * 8 and len(calls) == 1


def test_a_function_that_asks_for_its_own_result_is_told(broker: Broker) -> None:
    def make() -> np.ndarray:
        return broker.cached("itself", make)

    with pytest.raises(InvalidRequest, match="asks for 'itself' itself"):
        broker.cached("itself", make)
    inner = broker.cached("outer", lambda: broker.cached("inner", lambda: np.ones(3)) + 1)
    assert inner.tolist() == [2, 2, 2]


def test_an_exception_of_make_leaves_nothing(broker: Broker) -> None:
    with pytest.raises(ZeroDivisionError):
        broker.cached("wrong", lambda: 1 / 0)
    with pytest.raises(UnsupportedArray):
        broker.cached("wrong", lambda: object())
    assert broker.list() == []
    assert broker.cached("wrong", lambda: np.ones(2)).tolist() == [1, 1]


WRONG = [
    (("", lambda: np.ones(1)), {}, "name"), (("x", np.ones(1)), {}, "make must be a function"),
    (("x", lambda: np.ones(1)), {"wait": -1}, "wait must be"), (("x", lambda: np.ones(1)), {"lifetime": 0}, "lifetime must be"),
    (("x", lambda: np.ones(1)), {"newer_than": 3}, "newer_than goes with get"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "options", "text"), WRONG, ids=[text for *_, text in WRONG])
def test_wrong_arguments_are_refused(broker: Broker, arguments, options, text) -> None:
    with pytest.raises(InvalidRequest, match=text):
        broker.cached(*arguments, **options)


def test_no_room_is_told_and_the_next_call_makes_again(broker: Broker) -> None:
    with Broker(broker.address, namespace=broker.namespace, start="never", timeout_s=0.2) as hurried:
        calls: list[int] = []

        def huge() -> np.ndarray:
            calls.append(1)
            return np.broadcast_to(np.float64(1), (1 << 45,))

        for _ in range(2):
            with pytest.raises((OutOfMemory, InvalidRequest)):
                hurried.cached("huge", huge)
        assert len(calls) == 2
