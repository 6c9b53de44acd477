# SPDX-License-Identifier: Apache-2.0
"""Starts the server, and takes steps until the noise is a tenth of what it was."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from arraybridge import Broker

server = subprocess.Popen([sys.executable, Path(__file__).with_name("server.py")], stdout=subprocess.PIPE, text=True)
image = np.random.default_rng(0).normal(size=(256, 256)).astype("float32")
for number, step in enumerate(Broker().call("smooth", image, stream=True)):
    print(f"step {number}: noise {step.std():.3f}", flush=True)
    if step.std() < 0.1:
        break
assert server.stdout is not None
print(server.stdout.readline(), end="")
server.kill()
server.wait()
