# SPDX-License-Identifier: Apache-2.0
"""Kills the trainer after a few steps, and starts it again: run.py FOLDER."""

import subprocess
import sys
from pathlib import Path

trainer = [sys.executable, Path(__file__).with_name("train.py"), sys.argv[1]]
with subprocess.Popen(trainer, stdout=subprocess.PIPE, text=True) as training:
    for line in training.stdout:
        print(line, end="", flush=True)
        if line.startswith("finished step 3"):
            training.kill()
            print("the trainer was killed", flush=True)
subprocess.run(trainer, check=True)
