# SPDX-License-Identifier: Apache-2.0
"""A worker of three: `worker.py ADDRESS NAMESPACE NAME`. It takes frames, and sends ten times each on with its sequence. At
frame 5 it says so, and waits to be killed, if no worker did before.
"""

import os
import sys
import time

import arraybridge

address, namespace, name = sys.argv[1:]
broker = arraybridge.Broker(address, namespace=namespace, start="never", client=name)
with broker.channel("done").open("sender") as done, broker.channel("work").open("receiver") as work:
    os.write(1, b"open\n")
    for frame in work.receiver(info=True):
        if frame.sequence == 5:
            os.write(1, b"holds frame 5\n")
            time.sleep(600)
        done.send(frame.array * 10, metadata=frame.sequence)
