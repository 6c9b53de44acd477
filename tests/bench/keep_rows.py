# SPDX-License-Identifier: Apache-2.0
"""The rows of results and states that are kept, each beside the same work without arraybridge, in one run.

cached_hit: Broker.cached of a name that is there; floor: Broker.get. cached_8: eight processes ask at once for a result that
takes half a second to make; floor: that time. checkpoint_save: Checkpoints.save of a state, until it returns; floor: memcpy
into warm memory; peer: torch.save to the same disk. checkpoint_restore: Checkpoints.latest from memory, in a new process that
has connected; peer: torch.load of the file, in the page cache.

    tests/bench/keep_rows.py [full] prints the rows as JSON
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path
from typing import Any

from table_rows import row

PROCESSES = 8
MAKE_S = 0.5
ARRAYS = 64  # of a state
WORK = {
    "cached_hit": ("cached of a name that is there; floor: get", "us", "<= 1.2 x"),
    "cached_8": ("eight processes ask for one result that takes 500 ms to make; floor: that time", "ms", "<= 1.1 x"),
    "checkpoint_save": ("a checkpoint of 64 tensors until save returns; floor: memcpy; peer: torch.save", "ms", "<= 1.15 x"),
    "checkpoint_restore": ("its latest state in a new process, from memory; peer: torch.load", "ms", None),
}
ASKER = """
import os, sys, time
import numpy as np
from arraybridge import Broker
broker = Broker(sys.argv[1], start="never")
broker.list()
def make():
    os.write(1, b"made\\n")
    time.sleep(float(sys.argv[2]))
    return np.ones(1 << 20)
os.write(1, b"ready\\n")
sys.stdin.buffer.readline()
assert broker.cached("result", make).size == 1 << 20
os.write(1, b"has it\\n")
sys.stdin.buffer.readline()
"""
RESTORER = """
import sys, time
import torch
from arraybridge import Broker, Checkpoints
broker = Broker(sys.argv[1], start="never")
broker.list()
began = time.perf_counter()
state = Checkpoints("bench", sys.argv[2], broker=broker).latest("torch").state
ours = time.perf_counter() - began
began = time.perf_counter()
other = torch.load(sys.argv[3])
print(ours * 1e3, (time.perf_counter() - began) * 1e3, all(torch.equal(state[name], other[name]) for name in other))
"""


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    environment = {**os.environ, "ARRAYBRIDGE_DAEMON": str(build / "daemon/arraybridged")}
    done = subprocess.run([sys.executable, __file__, *(["full"] if full else [])], env=environment, stdout=subprocess.PIPE, check=True)
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made


def hit_us(broker: Any) -> tuple[float, float]:
    import numpy as np

    def make() -> Any:
        return np.ones(1000)

    broker.cached("hit", make)
    hits, gets = [], []
    for _ in range(30):
        hits.append(timeit.timeit(lambda: broker.cached("hit", make), number=2000) / 2000)
        gets.append(timeit.timeit(lambda: broker.get("hit"), number=2000) / 2000)
    return statistics.median(hits) * 1e6, statistics.median(gets) * 1e6


def asked_ms(broker: Any) -> float:
    """From the moment when eight processes may ask until all have the result."""
    command = [sys.executable, "-c", ASKER, broker.address, str(MAKE_S)]
    askers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(PROCESSES)]
    lines: list[bytes] = []
    for asker in askers:
        assert asker.stdout is not None
        lines.append(asker.stdout.readline())
    began = time.perf_counter()
    for asker in askers:
        assert asker.stdin is not None
        asker.stdin.write(b"go\n")
        asker.stdin.flush()
    for asker in askers:
        assert asker.stdout is not None
        while lines[-1] != b"has it\n":
            lines.append(asker.stdout.readline())
        lines.append(b"")
    took = time.perf_counter() - began
    for asker in askers:
        asker.communicate(b"\n")
    assert lines.count(b"made\n") == 1, lines
    return took * 1e3


def saved_ms(broker: Any, folder: Path, mebibytes: int, rounds: int) -> dict[str, float]:
    """Medians of saves of a state, and of the same work without a broker. Leaves the latest state, and torch's file."""
    import numpy as np
    import torch

    from arraybridge import Checkpoints

    state = {f"layer.{number}": torch.rand(mebibytes * (1 << 20) // 4 // ARRAYS) for number in range(ARRAYS)}
    warm = {name: np.ones_like(tensor.numpy()) for name, tensor in state.items()}
    took: dict[str, list[float]] = {"save": [], "memcpy": [], "torch": []}
    with Checkpoints("bench", folder, broker=broker, keep=1) as checkpoints:
        for step in range(rounds):
            began = time.perf_counter()
            checkpoints.save(step, state)
            took["save"].append(time.perf_counter() - began)
            checkpoints.flush()
            began = time.perf_counter()
            for name, tensor in state.items():
                np.copyto(warm[name], tensor.numpy())
            took["memcpy"].append(time.perf_counter() - began)
            began = time.perf_counter()
            torch.save(state, folder / "torch.pt")
            took["torch"].append(time.perf_counter() - began)
    return {name: statistics.median(each) * 1e3 for name, each in took.items()}


def restored_ms(broker: Any, folder: Path, rounds: int) -> tuple[float, float]:
    command = [sys.executable, "-c", RESTORER, broker.address, str(folder), str(folder / "torch.pt")]
    found = [subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split() for _ in range(rounds)]
    assert all(same == "True" for *_, same in found)
    return statistics.median(float(ours) for ours, *_ in found), statistics.median(float(theirs) for _, theirs, _ in found)


def measure(full: bool) -> list[dict[str, Any]]:
    import arraybridge

    with arraybridge.Broker(start="private", timeout_s=60) as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hit, get = hit_us(broker)
        asked = asked_ms(broker)
        saved = saved_ms(broker, folder, 1024 if full else 64, 7 if full else 3)
        ours, theirs = restored_ms(broker, folder, 5 if full else 1)
        return [
            row("cached_hit", WORK["cached_hit"], hit, get),
            row("cached_8", WORK["cached_8"], asked, MAKE_S * 1e3),
            row("checkpoint_save", WORK["checkpoint_save"], saved["save"], saved["memcpy"], "torch.save", saved["torch"]),
            row("checkpoint_restore", WORK["checkpoint_restore"], ours, None, "torch.load", theirs),
        ]


if __name__ == "__main__":
    print(json.dumps(measure("full" in sys.argv[1:]), indent=2))
