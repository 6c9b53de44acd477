# SPDX-License-Identifier: Apache-2.0
"""Shows two frames a second. It is much slower than the camera, which does not wait for it."""

import time

from arraybridge import Broker

with Broker().channel("live", on_peer_death="wait") as live:
    for frame in live.receiver("numpy", info=True):
        print(frame.metadata, flush=True)
        time.sleep(0.5)  # stands for drawing
