# SPDX-License-Identifier: Apache-2.0
"""Puts frames of 24 MiB, copied and without a copy, while viewer.py checks each of them."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from arraybridge import Broker

FRAMES = 20
SENSOR = np.random.default_rng(0).integers(0, 4096, (2048, 3072), "uint16")


def develop(number):
    """A frame of float32, by ordinary NumPy, which knows of no broker."""
    frame = SENSOR.astype("float32")
    frame -= frame.min()
    frame *= 1 / frame.max()
    frame[0, 0] = number
    return frame


def publish(broker, numbers):
    """Puts these frames. Returns the median of the puts, in microseconds."""
    took = []
    for number in numbers:
        frame = develop(number)
        start = time.perf_counter()
        broker.put(frame, f"frame {number}")
        took.append((time.perf_counter() - start) * 1e6)
    return statistics.median(took)


with Broker() as broker:
    viewer = Path(__file__).with_name("viewer.py")
    with subprocess.Popen([sys.executable, viewer, broker.address, str(2 * FRAMES)]) as watching:
        copied = publish(broker, range(FRAMES))
        with broker.born("numpy", reserve_bytes=256 << 20) as born:  # ten frames
            in_place = publish(broker, range(FRAMES, 2 * FRAMES))
    print(f"a put took {copied:,.0f} us with a copy, {in_place:,.0f} us without one")
    print(f"in broker memory: {born.arrays} arrays, {born.bytes / 2**20:,.0f} MiB; missed: {born.missed or 'none'}")
    sys.exit(watching.returncode)
