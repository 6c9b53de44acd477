# SPDX-License-Identifier: Apache-2.0
"""A process with a Broker, which a test may stop and kill: ``lone_program.py ADDRESS``. It imports a package when it uses it.

Each line of standard input names a function and its arguments; the answer is one line: its result or its exception.
"""

import sys
import threading
import time

import numpy as np
from cell_commands import expected, right
from real_packages import calls, package
from shares import view_of

import arraybridge

broker = arraybridge.Broker(sys.argv[1], start="never")
held: list[object] = []


def put_pending(of: str, name: str, start: str) -> str:
    """Puts an array that queued work of the package writes, as a tensor: for PyTorch's stream no put waits."""
    array, current_stream = package(of).pending(expected(start))
    done = calls("kernels_done"), calls("copies_done")
    with current_stream:
        share = broker.put(broker.convert(array, "torch", copy=False), name)
    held.append(array)
    waited = (calls("kernels_done"), calls("copies_done")) != done
    return "waited" if waited else f"{share.device} pending"


def put_born_pending(of: str, name: str, start: str) -> str:
    """Puts an array that lies in broker memory, and that queued work of the package writes."""
    if of == "cupy":
        package(of)  # whose runtime it chooses
    with broker.born(of, device=0):  # type: ignore[arg-type]
        array, current_stream = package(of).pending(np.resize(expected(start), 3 << 20 if of == "torch" else 20_000))
    done = calls("kernels_done"), calls("copies_done")
    with current_stream:
        share = broker.put(array, name)
    held.append(array)
    waited = (calls("kernels_done"), calls("copies_done")) != done
    return "waited" if waited else f"{share.device} pending"


def read_first(name: str) -> str:
    return str(broker.get(name).ravel()[0])


def hold(name: str) -> str:
    """Takes a share, and does not wait for its bytes."""
    held.append(view_of(broker, name))
    return "held"


def read_held(start: str) -> str:
    return right(np.from_dlpack(held[-1], device="cpu"), start)  # type: ignore[arg-type]


def read(of: str, name: str, start: str) -> str:
    own = package(of)
    array, _ = own.got(broker, name)
    return right(own.values(array), start)


def read_numpy(name: str, start: str) -> str:
    return right(broker.get(name), start)


def wait_for(way: str, *arguments: str) -> str:
    """As `way`, with a line of output before, when a call of the driver waits."""
    done = threading.Event()
    before = waits()

    def tell() -> None:
        while waits() == before and not done.is_set():
            time.sleep(0.002)
        print("waits", flush=True)

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        return FUNCTIONS[way](*arguments)
    finally:
        done.set()
        teller.join()


def waits() -> int:
    # The client waits by polling; its reclaimer asks now and then, too.
    asked = calls("cuEventQuery") // 10
    return asked + sum(map(calls, ("cuEventSynchronize", "cuStreamSynchronize", "cuMemcpyAsync", "cuMemcpyDtoHAsync")))


def write(of: str, name: str) -> str:
    own = package(of)
    own.write(own.got(broker, name)[0])
    return "written"


def hold_in_place(of: str, name: str) -> str:
    """Keeps an array of the GPU over a share in host memory."""
    held.append(package(of).got(broker, name, device="cuda:0", mapped=True)[0])
    return "held"


def write_in_place(of: str, name: str) -> str:
    """Writes to such an array, by work on the GPU."""
    own = package(of)
    own.write(own.got(broker, name, device="cuda:0", mapped=True)[0])
    return "written"


def lost() -> str:
    return str(broker.stats()["lost_fences_total"])


FUNCTIONS = {each.__name__: each for each in (
    put_pending, put_born_pending, read_first, hold, read_held, read, read_numpy, wait_for, write,
    hold_in_place, write_in_place, lost,
)}  # fmt: skip

for line in sys.stdin:
    verb, *arguments = line.split()
    try:
        answer = FUNCTIONS[verb](*arguments)
    except Exception as error:
        answer = f"{type(error).__name__}: {error}".replace("\n", " ")
    print(answer, flush=True)
