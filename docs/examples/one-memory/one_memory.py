# SPDX-License-Identifier: Apache-2.0
"""Reads a frame of NumPy's, which another process has put, on a GPU: without a copy, where the GPU reads the host's memory."""

import subprocess
import sys

import cupy

from arraybridge import Broker

CAMERA = """
import sys
import numpy
from arraybridge import Broker
Broker(sys.argv[1], start="never").put(numpy.arange(100_000, dtype="float32"), "frame", replace=True)
"""
MAPPED = True if "--mapped" in sys.argv else None  # None: only where GPU and host have one memory

with Broker() as broker:
    subprocess.run([sys.executable, "-c", CAMERA, broker.address], check=True)
    frame, plan = broker.get("frame", "cupy", device="cuda:0", mapped=MAPPED, explain=True)
    print(f"{plan.via}, copies: {plan.copies}")
    brighter = frame + cupy.float32(1)  # a kernel reads the bytes that NumPy wrote
    print(f"the GPU made {float(brighter[0]):.0f} to {float(brighter[-1]):.0f} of it")
    again = broker.put(frame, "again", replace=True)
    print(f"put again, it lies on {'the host' if again.device == (1, 0) else 'the GPU'}")
