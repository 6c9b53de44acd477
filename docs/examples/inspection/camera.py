# SPDX-License-Identifier: Apache-2.0
"""Takes 30 frames a second until SECONDS after BEGUN, and lets other processes set its exposure meanwhile.

camera.py BEGUN SECONDS    BEGUN is a value of time.monotonic, which all processes of a machine share
"""

import sys
import time

from arraybridge import Broker

SHAPE = (480, 640)
RATE = 30  # frames a second


def next_number(last: int, begun: float) -> int:
    """Waits for the next frame. Its number counts from BEGUN, as that of a camera which runs on while this process is
    restarted."""
    number = max(last + 1, int((time.monotonic() - begun) * RATE))
    time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
    return number


def main(begun: float, seconds: float) -> None:
    broker, exposure = Broker(), 10
    with (
        broker.channel("frames", on_peer_death="wait").open("sender") as frames,
        broker.channel("live", mode="broadcast", on_slow="drop_oldest").open("sender") as live,
        broker.service("camera") as control,
    ):
        number = next_number(-1, begun)
        while number < seconds * RATE:
            request = control.try_receive()
            if request is not None:
                exposure = request.value["exposure"]
                request.reply({"from frame": number})
            frame = broker.empty(SHAPE, "uint8")  # in broker memory: neither send copies anything
            frame.fill(exposure)  # stands for what a driver writes
            frames.send(frame, metadata=number)
            live.send(frame, metadata=number)  # waits for no receiver
            print(number, flush=True)
            number = next_number(number, begun)


main(float(sys.argv[1]), float(sys.argv[2]))
