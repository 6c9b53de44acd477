# SPDX-License-Identifier: Apache-2.0
"""Forks while born arrays live: neither process sees what the other writes later, and no reader sees what was not put."""

import time

import pytest
from processes import Client

HEAD = """
import os, sys, time
import numpy as np
from arraybridge import Broker
from in_place import is_put_in_place

N = 1 << 17
broker = Broker(sys.argv[1], namespace=sys.argv[2], start="never")


def forked(work):
    "Runs it in a child; `go` lets the child continue."
    read, go = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work(lambda: os.read(read, 1))
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return go, child


def joined(go, child):
    os.write(go, b"x")
    assert os.waitpid(child, 0)[1] == 0
"""

PROGRAMS = {
    "a child sees its parent's arrays as they were": """
with broker.born("numpy"):
    array, put = np.full(N, 1.0), np.full(N, 10.0)
    view = put[:4]
    broker.put(put, "put")
    def child(wait):
        wait()
        assert (array == 1).all() and (put == 10).all(), (array[0], put[0])
        array[:] = 3                                    # neither does the parent
    running = forked(child)
    array[:] = 2
    view[:] = 11                                        # through a view that was made before the put
    joined(*running)
    assert (array == 2).all()
    assert (broker.get("put") == 10).all()
    assert not is_put_in_place(broker, array), "its pages are the parent's own since the fork"
    assert (broker.get("array-0") == 2).all()
""",
    "and so does the child of a later fork": """
with broker.born("numpy"):
    array = np.full(N, 1.0)
    for number in range(2, 6):
        def child(wait):
            wait()
            assert (array == number - 1).all(), array[0]
        running = forked(child)
        array[:] = number
        joined(*running)
    assert (array == 5).all()
""",
    "what is freed is not used again while the child reads it": """
with broker.born("numpy") as born:
    array = np.full(N, 1.0)
    address = array.ctypes.data
    def child(wait):
        wait()
        assert (array == 1).all()
    running = forked(child)
    del array
    others = []
    until = time.monotonic() + 60
    while born.arrays < 40 and time.monotonic() < until:
        others.append(np.full(N, 42.0))
    assert born.arrays >= 40, born
    assert all(each.ctypes.data != address for each in others)
    joined(*running)
    assert is_put_in_place(broker, others[-1])
""",
    "a child's arrays are its own": """
with broker.born("numpy") as born:
    array = np.full(N, 1.0)
    before = born.arrays
    def child(wait):
        made = array + 1
        assert born.missed == {"child": (1, made.nbytes)} and (made == 2).all(), born
        array.resize(2 * N, refcheck=False)
        assert (array[:N] == 1).all()
        assert not is_put_in_place(broker, made)        # by a connection of its own
        with broker.born("numpy") as own:
            inside = np.full(N, 3.0)
        assert is_put_in_place(broker, inside) and own.missed == {}
    joined(*forked(child))
    assert born.arrays == before and (array == 1).all()
""",
    "forks beside allocations": """
import threading
with broker.born("numpy"):
    wrong = []
    def work(number):
        with broker.born("numpy"):
            for turn in range(300):
                made = np.full(N // 4, number + turn, float)
                if (made != number + turn).any():
                    wrong.append((number, turn))
                if turn % 10 == 0:
                    broker.put(made, "of-%d" % number, replace=True)
                    if (broker.get("of-%d" % number) != number + turn).any():
                        wrong.append((number, turn, "put"))
    threads = [threading.Thread(target=work, args=(number,)) for number in (1000, 2000)]
    for thread in threads:
        thread.start()
    for turn in range(20):
        kept = np.full(N, turn, float)
        def child(wait):
            wait()
            assert (kept == turn).all()
        running = forked(child)
        kept[:] = -1
        joined(*running)
    for thread in threads:
        thread.join()
    assert wrong == []
""",
    "everywhere": """
with broker.born("numpy", everywhere=True) as born:
    array = np.full(N, 1.0)
    def child(wait):
        wait()
        made = array + 1
        assert born.missed == {"child": (1, made.nbytes)} and (array == 1).all() and (made == 2).all()
    running = forked(child)
    array[:] = 5
    joined(*running)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_forks(client: Client, name: str) -> None:
    namespace = f"forks-{time.time_ns()}"
    said = client(HEAD + PROGRAMS[name] + "\nprint('ok')", namespace)
    assert said == "ok\n"
