# SPDX-License-Identifier: Apache-2.0
"""The first stage: 30 frames a second of 1080p, each with its number, until SECONDS after BEGUN.

camera.py BEGUN SECONDS    BEGUN is a value of time.monotonic, which all processes of a machine share
"""

import sys
import time

from arraybridge import Broker

SHAPE = (1080, 1920, 3)
RATE = 30  # frames a second


def next_number(last: int, begun: float) -> int:
    """Waits for the next frame. Its number counts from BEGUN, as that of a real camera, which runs on while this process
    is restarted, or waits for room in the channel."""
    number = max(last + 1, int((time.monotonic() - begun) * RATE))
    time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
    return number


def main(begun: float, seconds: float) -> None:
    broker = Broker()
    with broker.channel("raw", on_peer_death="wait").open("sender") as raw:
        number = next_number(-1, begun)
        while number < seconds * RATE:
            frame = broker.empty(SHAPE, "uint8")  # in broker memory: send copies nothing
            frame.fill(number % 256)  # stands for what a driver writes
            raw.send(frame, metadata=str(number).encode())
            print(number, flush=True)
            number = next_number(number, begun)


main(float(sys.argv[1]), float(sys.argv[2]))
