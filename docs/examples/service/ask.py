# SPDX-License-Identifier: Apache-2.0
"""Has images inverted: four bright ones, a dark one, and four bright ones again."""

import numpy as np

from arraybridge import Broker, ServerGone

broker = Broker()


def ask(light: int) -> None:
    image = np.full((480, 640), light, "uint8")
    try:
        answer = broker.call("invert", image)
    except ServerGone as gone:
        print(f"an image of {light}: {gone.client} is gone", flush=True)
    else:
        print(f"an image of {light}: inverted {answer['image'][0, 0]} by server {answer['by']}", flush=True)


for light in (1, 2, 3, 4, 0, 5, 6, 7, 8):
    ask(light)
