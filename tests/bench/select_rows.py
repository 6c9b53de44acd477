# SPDX-License-Identifier: Apache-2.0
"""The row of select: one of many channels is ready, beside a channel alone.

tests/bench/select_rows.py [full]      prints the row as JSON
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from service_rows import row

CHANNELS = 64


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    environment = {**os.environ, "ARRAYBRIDGE_DAEMON": str(build / "daemon/arraybridged")}
    done = subprocess.run([sys.executable, __file__, *(["full"] if full else [])], env=environment, stdout=subprocess.PIPE, check=True)
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made


def measure(full: bool) -> list[dict[str, Any]]:
    from arraybridge import Broker, select

    rounds = 200 if full else 40
    with Broker(start="private") as broker, Broker(broker.address) as other:
        channels = [broker.channel(f"channel {number}").open("receiver") for number in range(CHANNELS)]
        senders = [other.channel(channel.name).open("sender") for channel in channels]
        array, plain = np.ones(1024, "f4"), broker.channel("plain").open("receiver")
        to_plain = other.channel("plain").open("sender")
        assert select(channels, timeout=0) == []
        selected, received = list[float](), list[float]()
        for number in range(CHANNELS * rounds // 10):
            place = (number * 17) % CHANNELS
            begun = time.perf_counter_ns()
            senders[place].send(array)
            (ready,) = select(channels, timeout=60)
            ready.receive()
            selected.append((time.perf_counter_ns() - begun) / 1000)
            begun = time.perf_counter_ns()
            to_plain.send(array)
            plain.receive()
            received.append((time.perf_counter_ns() - begun) / 1000)
    work = f"send into one of {CHANNELS} channels, select and receive, in one process; floor: send and receive"
    return [row("select_64", work, "<= 2 x", statistics.median(selected), statistics.median(received))]


if __name__ == "__main__":
    print(json.dumps(measure("full" in sys.argv[1:]), indent=2))
