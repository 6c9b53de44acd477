# SPDX-License-Identifier: Apache-2.0
"""The rows of models that several processes use, each beside the same work without arraybridge.

load_safetensors: arraybridge.load of a file in the page cache into memory that the broker has; floor: pread of the file
into warm memory. model_attach: Broker.open and Bundle.torch in a process that has not read it; floor: torch.load of the
same model. model_processes_8: the memory (PSS beyond that of the imports) of a model in eight processes that read all of
it; floor: the model's bytes; peers: torch.load in each; safetensors' load_file, which maps the file; and one torch process
that loads it and passes the tensors on (torch.multiprocessing).

    tests/bench/models.py [full] prints the rows as JSON, with the figures of the peers
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROCESSES = 8  # in a full run; importing torch is what they cost
WORK = {
    "load_safetensors": ("arraybridge.load of a safetensors file; floor: pread into warm memory", "ms", "<= 1.15 x"),
    "model_attach": ("a model of a bundle in another process, torch; floor: torch.load", "ms", "<= 100 ms"),
    "model_processes_8": ("memory of a model in eight processes; floor: the model", "MiB", "<= 1.05 x"),
}
PEER = "torch.load in each process"
PIECE = 8 << 20


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    environment = {**os.environ, "ARRAYBRIDGE_DAEMON": str(build / "daemon/arraybridged")}
    done = subprocess.run([sys.executable, __file__, *(["full"] if full else [])], env=environment, stdout=subprocess.PIPE, check=True)
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made


def weights(mebibytes: int) -> dict[str, Any]:
    import numpy as np

    return {f"layers.{i}.weight": np.full((1024, 1024), i, "float32") for i in range(mebibytes // 4)}


def pread_ms(fd: int, room: memoryview) -> float:
    begun = time.perf_counter()
    offset = 0
    while offset < len(room):
        offset += os.preadv(fd, [room[offset : offset + PIECE]], offset)
    return (time.perf_counter() - begun) * 1e3


def load_ms(broker: Any, file: Path, name: str) -> float:
    import arraybridge

    begun = time.perf_counter()
    arraybridge.load(file, name, broker=broker)
    took = (time.perf_counter() - begun) * 1e3
    broker.withdraw(name)
    return took


def pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no Pss")


# Reads a line, gets the model, sums all of it, and reports the milliseconds of the getting.
READER = """
import sys, time, torch
import arraybridge, safetensors.torch
torch.set_num_threads(1)
torch.ones(1024, 1024).sum()
broker = arraybridge.Broker(sys.argv[1], start="never")
broker.stats()
print("ready", flush=True)
sys.stdin.readline()
begun = time.perf_counter()
if sys.argv[3] == "arraybridge":
    model = broker.open("model").torch(access="shared")
elif sys.argv[3] == "torch.load":
    model = torch.load(sys.argv[2] + ".pt")
else:
    model = safetensors.torch.load_file(sys.argv[2])
took = time.perf_counter() - begun
assert sum(float(tensor[0, 0]) + float(tensor.sum()) * 0 for tensor in model.values()) >= 0
print(took * 1e3, flush=True)
sys.stdin.readline()
"""


def in_processes(address: str, file: Path, how: str, processes: int = PROCESSES) -> tuple[float, float]:
    """MiB of the model in all processes, and the median of milliseconds to get it."""
    words = [sys.executable, "-c", READER, address, str(file), how]
    readers = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    for reader in readers:
        assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
    before = sum(pss_mib(reader.pid) for reader in readers)
    took = []
    for reader in readers:  # one after another: the time of each is its own
        assert reader.stdin is not None and reader.stdout is not None
        reader.stdin.write("\n")
        reader.stdin.flush()
        took.append(float(reader.stdout.readline()))
    memory = sum(pss_mib(reader.pid) for reader in readers) - before
    for reader in readers:
        reader.communicate("\n")
    return memory, statistics.median(took)


def receive(tensors: Any, ready: Any, over: Any) -> None:
    assert sum(float(tensor.sum()) * 0 for tensor in tensors.values()) == 0
    ready.release()
    over.wait()


def idle(ready: Any, over: Any) -> None:
    import torch

    torch.ones(1024, 1024).sum()
    ready.release()
    over.wait()


def passed_on_mib(file: Path) -> float:
    """The same of torch.multiprocessing: this process loads the model, and shares it with eight."""
    import safetensors.torch
    import torch.multiprocessing

    torch.multiprocessing.set_sharing_strategy("file_system")
    context = torch.multiprocessing.get_context("spawn")
    found = []
    for target, share in ((idle, False), (receive, True)):
        ready, over = context.Semaphore(0), context.Event()
        before = pss_mib(os.getpid())
        model = {name: tensor.share_memory_() for name, tensor in safetensors.torch.load_file(file).items()} if share else {}
        others = [context.Process(target=target, args=(*([model] if share else []), ready, over)) for _ in range(PROCESSES)]
        for other in others:
            other.start()
        for _ in others:
            ready.acquire()
        found.append(sum(pss_mib(other.pid) for other in others) + pss_mib(os.getpid()) - before)
        over.set()
        for other in others:
            other.join()
    return found[1] - found[0]


def read_ms(file: Path, turns: int) -> tuple[list[float], list[float]]:
    """Milliseconds of `load`, and of pread, in turns."""
    import arraybridge

    room = memoryview(bytearray(file.stat().st_size))
    fd = os.open(file, os.O_RDONLY)
    loads, preads = [], []
    with arraybridge.Broker(start="private", timeout_s=60) as broker:
        load_ms(broker, file, "first")  # the broker has the memory from here on
        for turn in range(turns):
            preads.append(pread_ms(fd, room))
            loads.append(load_ms(broker, file, f"turn {turn}"))
    os.close(fd)
    return loads, preads


def measure(full: bool) -> list[dict[str, Any]]:
    import safetensors.numpy
    import safetensors.torch
    import torch

    import arraybridge

    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        safetensors.numpy.save_file(weights(1024 if full else 64), file)
        torch.save(safetensors.torch.load_file(file), f"{file}.pt")
        size = file.stat().st_size
        loads, preads = read_ms(file, 9 if full else 3)
        with arraybridge.Broker(start="private") as broker:
            # Not in this process, which would map the model as the ninth.
            subprocess.run(
                [sys.executable, "-m", "arraybridge", "load", file, "--address", broker.address], stdout=subprocess.DEVNULL, check=True
            )
            processes = PROCESSES if full else 2
            memory, attach = in_processes(str(broker.address), file, "arraybridge", processes)
            peer_memory, torch_load = in_processes(str(broker.address), file, "torch.load", processes)
            figures = {
                "load_safetensors": (statistics.median(loads), statistics.median(preads), None),
                "model_attach": (attach, torch_load, None),
                "model_processes_8": (memory, size / (1 << 20), peer_memory),
            }
            for row, (value, floor, peer) in figures.items():
                work, unit, reach = WORK[row]
                if row == "model_processes_8" and not full:
                    work += f"; with --quick in {processes}"
                found.append(
                    {"id": row, "work": work, "value": round(value, 2), "unit": unit, "floor": round(floor, 2), "ratio": round(value / floor, 3),
                     "reach": reach, "peer": None if peer is None else PEER, "peer_value": None if peer is None else round(peer, 2)}
                )  # fmt: skip
            if full:
                mapped, load_file = in_processes(str(broker.address), file, "load_file")
                found[-1] |= {
                    "load_file": round(mapped, 2),
                    "load_file_ms": round(load_file, 2),
                    "passed_on": round(passed_on_mib(file), 2),
                }
    return found


if __name__ == "__main__":
    print(json.dumps(measure("full" in sys.argv[1:]), indent=2))
