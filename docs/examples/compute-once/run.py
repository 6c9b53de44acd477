# SPDX-License-Identifier: Apache-2.0
"""Starts four workers at once, and a fifth after them."""

import subprocess
import sys
from pathlib import Path

worker = [sys.executable, Path(__file__).with_name("worker.py")]
together = [subprocess.Popen(worker) for _ in range(4)]
for each in together:
    assert each.wait() == 0
subprocess.run(worker, check=True)
