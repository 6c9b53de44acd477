# SPDX-License-Identifier: Apache-2.0
"""Prints the brightness of each image that it receives."""

from arraybridge import Broker

for image in Broker().channel("frames", on_peer_death="wait").receiver("numpy"):
    print("brightness", image.mean(), flush=True)
