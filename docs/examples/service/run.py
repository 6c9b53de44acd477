# SPDX-License-Identifier: Apache-2.0
"""Starts two servers and the caller, and kills the server that begins with the dark image."""

import os
import signal
import subprocess
import sys
from pathlib import Path

here = Path(__file__).parent
read, write = os.pipe()
servers = [subprocess.Popen([sys.executable, here / "server.py"], stdout=write) for _ in range(2)]
os.close(write)
caller = subprocess.Popen([sys.executable, here / "ask.py"])
lines = os.fdopen(read)  # stays open: the other server writes, too
for line in lines:
    print(line, end="", flush=True)
    if "dark" in line:
        os.kill(int(line.split()[1]), signal.SIGKILL)
        break
status = caller.wait()
for server in servers:
    server.kill()
    server.wait()
sys.exit(status)
