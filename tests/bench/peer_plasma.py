# SPDX-License-Identifier: Apache-2.0
"""A peer: put and get of Plasma, Arrow's store (its last wheels: pyarrow 11), from Python, NumPy arrays.

Run it with a pyarrow before 12 on the path; the argument is the store's socket. A put is the time until the bytes are
in the store for all clients: create, copy, seal; the previous object is deleted, so that memory is reused. A get lasts
from the call to an array on the shared bytes, by another client, and its release.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its deprecation warning
    import pyarrow.plasma as plasma

MIB = 1 << 20


def median_us(work: Callable[[], None], rounds: int, per_round: int) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter_ns()
        for _ in range(per_round):
            work()
        times.append((time.perf_counter_ns() - begun) / 1e3 / per_round)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    wish = parser.parse_args()
    writer, reader = (plasma.connect(wish.socket) for _ in range(2))
    source = np.full(64 * MIB, 7, dtype="u1")
    name = plasma.ObjectID(b"a" * 20)

    def put(size: int = 64 * MIB) -> None:
        writer.delete([name])
        buffer = writer.create(name, size)
        np.copyto(np.frombuffer(buffer, dtype="u1"), source[:size])
        del buffer
        writer.seal(name)

    def get() -> None:
        array = np.frombuffer(reader.get_buffers([name])[0], dtype="f4")
        assert array.nbytes == MIB

    for _ in range(3):
        put()
    print(json.dumps({"id": "peer_plasma_put_64mib", "value": median_us(put, wish.rounds, 1)}), flush=True)
    put(MIB)
    get()
    print(json.dumps({"id": "peer_plasma_get_1mib", "value": median_us(get, wish.rounds, 200)}), flush=True)


if __name__ == "__main__":
    main()
