# SPDX-License-Identifier: Apache-2.0
"""Sends images for ever; it waits while the viewer is away."""

import itertools
import time

from arraybridge import Broker

broker = Broker()
with broker.channel("frames", capacity=8, on_peer_death="wait") as frames:
    for number in itertools.count():
        image = broker.empty((480, 640), "uint8")  # in broker memory: sending copies nothing
        image[:] = number % 256
        frames.send(image)
        time.sleep(0.1)
