# SPDX-License-Identifier: Apache-2.0
"""A server of the tests: `server.py ADDRESS NAMESPACE SERVICE KIND FILE`. It writes a line to FILE for each request that it begins."""

import os
import sys
import time

import arraybridge
from arraybridge.broker.services.service import Service

address, namespace, name, kind, file = sys.argv[1:]
record = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def tell(*words: object) -> None:
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def stand(*_: object) -> None:
    """A server that is killed with a ticket in its hands, before it has asked the caller."""
    tell("ticket")
    time.sleep(600)


def until_cancelled(request: arraybridge.Request) -> None:
    tell("holds", request.process_id)
    while not request.cancelled:
        time.sleep(0.01)
    tell("cancelled", request.process_id)


def sequence(request: arraybridge.Request) -> None:
    """As many items as the caller says; then it holds the request."""
    count = int(request.value["n"])
    for number in range(count):
        request.stream({"n": number, "x": request.value["x"] * number})
    tell("holds", count)
    time.sleep(600)


if kind == "ticket":
    setattr(Service, "_ask", stand)
broker = arraybridge.Broker(address, namespace=namespace, start="never", client=f"server-{kind}", timeout_s=60)
with broker.service(name, retry=kind.startswith("retry"), queue=2 if kind == "small" else 64) as service:
    tell("open", os.getpid())
    for request in service.requests("torch" if kind == "torch" else "numpy"):
        number = int(request.value["n"])
        os.write(record, f"{number} {os.getpid()}\n".encode())
        if kind in ("hold", "retry-hold"):
            tell("holds", number)
            time.sleep(600)
        elif kind == "retry-die":
            os._exit(1)
        elif kind.endswith("sequence"):
            sequence(request)
        elif kind == "cancel":
            until_cancelled(request)
        elif kind == "fail":
            request.fail(f"number {number} is not for me")
            continue
        elif kind == "silent":
            continue
        elif kind == "once":
            request.reply({"n": number, "x": request.value["x"] * 2, "pid": os.getpid()})
            break
        elif kind == "leave":
            tell("leaves", number)
            break
        request.reply({"n": number, "x": request.value["x"] * 2, "pid": os.getpid()})
