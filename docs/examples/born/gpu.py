# SPDX-License-Identifier: Apache-2.0
"""Puts arrays that CuPy makes on the GPU in broker memory, and reads one in another process."""

import subprocess
import sys

import cupy

from arraybridge import Broker

READER = """
import sys
from arraybridge import Broker
frame = Broker(sys.argv[1], start="never").get("frame 2")
print(f"another process reads {frame[0]:.0f} to {frame[-1]:.0f}")
"""

with Broker() as broker:
    with broker.born("cupy", device="cuda:0") as born:
        for number in range(3):
            frame = cupy.arange(100_000, dtype="float32") + cupy.float32(number)
            broker.put(frame, f"frame {number}")  # copies nothing, and waits for no kernel
    print(f"in broker memory: {born.arrays} arrays; missed: {born.missed or 'none'}", flush=True)
    subprocess.run([sys.executable, "-c", READER, broker.address], check=True)
