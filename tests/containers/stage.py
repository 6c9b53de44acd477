# SPDX-License-Identifier: Apache-2.0
"""A process with one framework, alone in its container: ``stage.py ADDRESS FRAMEWORK``.

Each line of standard input is a function and its arguments; the answer is one line of JSON.
"""

import json
import os
import re
import sys
from typing import Any

import arraybridge

COUNT = 1 << 20
address, framework = sys.argv[1:]
broker = arraybridge.Broker(address, start="never")
kept: dict[str, Any] = {}


def address_of(array: Any) -> int:
    return int(array.data_ptr() if framework == "torch" else array.ctypes.data)


def behind(array: Any) -> dict[str, Any]:
    """The file that is mapped at the array's address, according to the kernel."""
    place = address_of(array)
    with open("/proc/self/maps") as maps:
        for line in maps:
            found = re.match(r"(\w+)-(\w+) (\S+) (\w+) (\S+) (\d+) *(.*)", line)
            assert found is not None
            first, last, rights, _, device, inode, name = found.groups()
            if int(first, 16) <= place < int(last, 16):
                return {"inode": [device, int(inode)], "rights": rights, "name": name.split()[0] if name else ""}
    raise AssertionError("the array lies nowhere")


def put(name: str, start: str) -> dict[str, Any]:
    """Creates an array in broker memory and publishes it in place."""
    array = broker.empty((COUNT,), "int32", framework)
    if framework == "torch":
        import torch

        array.copy_(torch.arange(int(start), int(start) + COUNT, dtype=torch.int32))
    else:
        import numpy as np

        array[:] = np.arange(int(start), int(start) + COUNT, dtype=np.int32)
    broker.put(array, name)
    kept[name] = array
    return behind(array)


def get(name: str) -> dict[str, Any]:
    array = kept[name] = broker.get(name, framework, wait=30)
    return {"start": int(array.reshape(-1)[0]), "sum": int(array.sum()), **behind(array)}


def look(name: str) -> dict[str, Any]:
    """Checks an array that is already held, without a call."""
    return {"start": int(kept[name][0]), "sum": int(kept[name].sum())}


def drop(name: str) -> str:
    del kept[name]
    broker.flush()
    return "ok"


def stats() -> dict[str, int]:
    return broker.stats()


def namespaces() -> dict[str, Any]:
    """Its namespaces, and the processes that it sees."""
    kinds = ("pid", "ipc", "net", "mnt", "uts")
    return {
        "in": {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in kinds},
        "pid": os.getpid(),
        "processes": len([entry for entry in os.listdir("/proc") if entry.isdigit()]),
        "run": sorted(os.listdir("/run")),
        "shm": os.listdir("/dev/shm"),
    }


for line in sys.stdin:
    verb, *arguments = line.split()
    try:
        print(json.dumps(globals()[verb](*arguments)), flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
