# SPDX-License-Identifier: Apache-2.0
"""Writes all frames into FOLDER, a file for each process that records. `arraybridgectl record` does the same.

record.py FOLDER
"""

import os
import sys

from arraybridge import Broker
from arraybridge.recording import Recorder

with Recorder(f"{sys.argv[1]}/frames-{os.getpid()}.mcap", ["live"], broker=Broker()) as recorder:
    print("records", flush=True)
    recorder.wait()
