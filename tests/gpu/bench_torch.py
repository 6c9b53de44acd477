# SPDX-License-Identifier: Apache-2.0
"""One hop of a CUDA tensor between two processes as PyTorch's users see it, by torch.multiprocessing and by the broker.

``bench_torch.py --sizes 4096,1048576 --rounds 9 [--address DIRECTORY]`` prints a JSON object per line: median
microseconds from sending to the consumer's acknowledgement.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing


def emit(row: str, size: int, us: float) -> None:
    print(json.dumps({"id": row, "bytes": size, "us": round(us, 2)}), flush=True)


def consume(queue: Any, pipe: Any, address: str) -> None:
    """Receives tensors until None arrives, and acknowledges each; the name of an array arrives through the pipe
    instead.
    """
    torch.empty(1, device="cuda")
    broker: Any = None
    if address:
        import arraybridge

        broker = arraybridge.Broker(address, start="never")
    pipe.send(b"r")
    kept = None
    while (name := pipe.recv()) is not None:
        kept = queue.get() if name == "" else broker.get(name, "torch")
        pipe.send(b"k")
    del kept


def median(rounds: int, send: Callable[[], None]) -> float:
    for _ in range(4):
        send()
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        send()
        times.append((time.perf_counter_ns() - start) / 1000)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="4096,1048576")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--address", default="")
    wish = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU")
    context = torch.multiprocessing.get_context("spawn")
    queue, (ours, theirs) = context.SimpleQueue(), context.Pipe()
    consumer = context.Process(target=consume, args=(queue, theirs, wish.address), daemon=True)
    consumer.start()
    ours.recv()

    def hop(tensor: torch.Tensor) -> None:
        ours.send("")
        queue.put(tensor)
        ours.recv()

    for size in (int(text) for text in wish.sizes.split(",")):
        source = torch.ones(size, dtype=torch.uint8).to("cuda")
        torch.cuda.synchronize()
        emit("torch_resend", size, median(wish.rounds, lambda: hop(source)))
        emit("torch_new", size, median(wish.rounds, lambda: hop(source.clone())))
        if wish.address:
            broker_hop(wish.address, source, ours, size, wish.rounds)
    ours.send(None)
    consumer.join()


def broker_hop(address: str, source: torch.Tensor, pipe: Any, size: int, rounds: int) -> None:
    import arraybridge

    with arraybridge.Broker(address, start="never") as broker:

        def hop() -> None:
            broker.put(source, name="hop", replace=True)
            pipe.send("hop")
            pipe.recv()

        try:
            broker.put(source, name="hop", replace=True)
        except (arraybridge.BrokerError, BufferError) as refused:
            print(json.dumps({"note": f"Broker.put of a CUDA tensor: {type(refused).__name__}: {refused}"}), flush=True)
            return
        emit("broker_torch", size, median(rounds, hop))
        broker.withdraw("hop")


if __name__ == "__main__":
    main()
