# SPDX-License-Identifier: Apache-2.0
"""Reads frames from a channel until its stream ends, and prints where the brightest pixel of each is: ADDRESS CHANNEL."""

import sys

import arraybridge

address, name = sys.argv[1:]
with arraybridge.Broker(address) as broker:
    for frame, number, *_ in broker.channel(name).receiver("torch", info=True):
        at = int(frame.argmax())
        print(number.decode(), at // frame.shape[1], at % frame.shape[1], flush=True)
