# SPDX-License-Identifier: Apache-2.0
"""Forks servers and callers that the test kills: `crowd.py ADDRESS NAMESPACE FOLDER`. It reads "server" or "caller", a line each,
and prints the process. A call asks for one answer, or for a sequence. It has no connection and no threads itself, and its children end with it.

A server writes the name of each request that it executes to FOLDER/executed. A caller writes to FOLDER/PID.calls "begin NAME",
and then "answer NAME", "gone NAME", or the error. It ends when FOLDER/end is there.
"""

import ctypes
import os
import random
import signal
import sys
import threading
from typing import Any

import numpy as np

import arraybridge

address, namespace, folder = sys.argv[1:]
PR_SET_PDEATHSIG = 1


def open_record(name: str) -> int:
    return os.open(f"{folder}/{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def connected(kind: str) -> arraybridge.Broker:
    return arraybridge.Broker(address, namespace=namespace, start="never", timeout_s=120, client=kind)


def serve() -> None:
    record = open_record("executed")
    with connected("server").service("work") as service:
        for request in service.requests():
            os.write(record, f"{request.value['name']}\n".encode())
            for number in range(request.value["items"]):
                request.stream({"number": number, "x": request.value["x"]})
            request.reply({"name": request.value["name"], "x": request.value["x"] + 1})


def call() -> None:
    threads = [threading.Thread(target=call_until_the_end, args=(number,)) for number in range(2)]
    broker = connected("caller")
    global _broker
    _broker = broker
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def called(request: dict[str, Any]) -> list[Any]:
    """The items of the answer, the last of which is the reply."""
    if request["items"]:
        return list(_broker.call("work", request, stream=True, timeout=300))
    return [_broker.call("work", request, timeout=300)]


def call_until_the_end(thread: int) -> None:
    record, number = open_record(f"{os.getpid()}-{thread}.calls"), 0
    while not os.path.exists(f"{folder}/end"):
        number += 1
        name = f"{os.getpid()}-{thread}-{number}"
        os.write(record, f"begin {name}\n".encode())
        value, items = np.full(random.choice((4, 4096)), number), random.choice((0, 0, 3, 20))
        try:
            *parts, answer = called({"name": name, "x": value, "items": items})
            right = answer["name"] == name and bool((answer["x"] == number + 1).all())
            right = right and [part["number"] for part in parts] == list(range(items))
            outcome = "answer" if right else "wrong"
        except arraybridge.ServerGone:
            outcome = "gone"
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
        os.write(record, f"{outcome} {name}\n".encode())


def fork(work: str) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        {"server": serve, "caller": call}[work]()
        code = 0
    finally:
        os._exit(code)


signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children need no waiting for
for line in sys.stdin:
    os.write(1, f"{fork(line.strip())}\n".encode())
