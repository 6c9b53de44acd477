# SPDX-License-Identifier: Apache-2.0
"""A worker of the tests: `worker.py ADDRESS NAMESPACE` sends frames of "work" to "done", and is killed with frame 2 in its hands."""

import os
import signal
import sys

import arraybridge

address, namespace = sys.argv[1:]
broker = arraybridge.Broker(address, namespace=namespace, start="never", client="worker", timeout_s=60)
with broker.channel("done").open("sender") as done, broker.channel("work").open("receiver") as work:
    print("open", flush=True)
    for frame in work.receiver(info=True):
        if frame.sequence == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        done.send(frame.array, metadata=frame.sequence, timeout=60)
