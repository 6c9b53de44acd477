# SPDX-License-Identifier: Apache-2.0
"""Which threads and tasks a block holds for, and arrays of many threads at a time."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from in_place import is_put_in_place
from processes import Client

from arraybridge import Broker

N = 1 << 17


def test_tasks_have_it_and_threads_do_not(broker: Broker) -> None:
    made: dict[str, Any] = {}

    async def task(name: str) -> None:
        await asyncio.sleep(0)
        made[name] = np.full(N, 1.0)

    async def all_of_them() -> None:
        await asyncio.gather(task("task"), asyncio.to_thread(lambda: made.update(in_thread=np.full(N, 1.0))))

    with broker.born("numpy"):
        asyncio.run(all_of_them())
        thread = threading.Thread(target=lambda: made.update(thread=np.full(N, 1.0)))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            made["pool"] = pool.submit(np.full, N, 1.0).result()
    found = {name: is_put_in_place(broker, array) for name, array in made.items()}
    assert found == {"task": True, "in_thread": True, "thread": False, "pool": False}


def test_a_task_beside_does_not_have_it(broker: Broker) -> None:
    async def inside(entered: asyncio.Event, leave: asyncio.Event) -> None:
        with broker.born("numpy"):
            entered.set()
            await leave.wait()

    async def both() -> Any:
        entered, leave = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(inside(entered, leave))
        await entered.wait()
        array = np.full(N, 1.0)
        leave.set()
        await running
        return array

    assert not is_put_in_place(broker, asyncio.run(both()))


def test_an_array_goes_on_another_thread(broker: Broker) -> None:
    with broker.born("numpy") as born:
        for _ in range(100):
            arrays = [np.full(N, 2.0)]
            thread = threading.Thread(target=arrays.clear)
            thread.start()
            thread.join()
    assert born.arrays == 100 and born.missed == {}


def test_threads_allocate_put_and_free_at_a_time(broker: Broker) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        kept: list[Any] = []
        with broker.born("numpy"):
            for turn in range(150):
                array = np.full(N // (1 + turn % 3), number * 1000 + turn, float)
                if turn % 5 == 0:
                    broker.put(array, f"{number}-{turn}")
                    if (broker.get(f"{number}-{turn}") != number * 1000 + turn).any():
                        wrong.append((number, turn))
                    broker.withdraw(f"{number}-{turn}")
                kept.append((array, number * 1000 + turn))
                kept[:-4] = []
                if any((array != value).any() for array, value in kept):
                    wrong.append((number, turn, "another's bytes"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# In a process of its own, because NumPy's own functions stay exchanged.
EVERYWHERE = """
import sys, threading
import numpy as np
from concurrent.futures import ThreadPoolExecutor
from arraybridge import Broker
from in_place import is_put_in_place

N = 1 << 17
older = np.full(N, 1.0)
broker, other = (Broker(sys.argv[1], namespace=name, start="never") for name in ("everywhere", "everywhere-2"))
pool = ThreadPoolExecutor(2)
pool.submit(int).result()
with broker.born("numpy", everywhere=True) as born:
    of_pool = pool.submit(np.full, N, 2.0).result()
    thread = threading.Thread(target=lambda: globals().update(of_thread=np.full(N, 3.0)))
    thread.start(); thread.join()
    with other.born("numpy", everywhere=True):
        inner = np.full(N, 4.0)
    outer = np.full(N, 5.0)
    zeros = np.zeros(N)
    small = np.empty(8)
after = np.full(N, 6.0)
assert is_put_in_place(broker, of_pool) and is_put_in_place(broker, of_thread) and is_put_in_place(other, inner)
assert is_put_in_place(broker, outer) and is_put_in_place(broker, zeros) and not zeros.any()
assert not is_put_in_place(broker, older) and not is_put_in_place(broker, after) and not is_put_in_place(broker, small)
assert born.arrays == 4 and born.missed == {}, born
older.resize(2 * N, refcheck=False)
grown = outer.copy(); grown.resize(2 * N, refcheck=False)
assert (older[:N] == 1).all() and (grown[:N] == 5).all()
with broker.born("numpy", everywhere=True):
    growing = np.full(N, 7.0)
growing.resize(2 * N, refcheck=False)
assert (growing[:N] == 7).all() and not is_put_in_place(broker, growing)
del of_pool, inner, outer, zeros, older, growing
with broker.born("numpy") as scoped:
    both = np.full(N, 8.0)
assert is_put_in_place(broker, both) and scoped.arrays == 1
print("ok")
"""


def test_everywhere_is_every_thread_until_the_end(client: Client) -> None:
    assert client(EVERYWHERE) == "ok\n"


EXITS = """
import sys, threading
import numpy as np
from arraybridge import Broker
broker = Broker(sys.argv[1], namespace="exits", start="never")
block = broker.born("numpy", everywhere=sys.argv[2] != "plain")
block.__enter__()
kept = [np.full(1 << 17, 1.0) for _ in range(4)]
sys.modules["kept"] = kept
class Late:
    def __del__(self):
        np.full(1 << 17, 2.0)
late = Late()
late.array = np.full(1 << 17, 3.0)
if sys.argv[2] == "thread":
    threading.Thread(target=lambda: [np.full(1 << 17, 2.0) for _ in iter(int, 1)], daemon=True).start()
broker.put(kept[0], "last", replace=True)
print("ok")
"""


@pytest.mark.parametrize("how", ["plain", "everywhere", "thread"])
def test_a_process_ends_with_arrays_in_a_block(client: Client, how: str) -> None:
    assert client(EXITS, how) == "ok\n"
