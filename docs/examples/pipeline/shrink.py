# SPDX-License-Identifier: Apache-2.0
"""The third stage: every eighth pixel of every eighth row, by TensorFlow or JAX.

shrink.py tensorflow|jax
"""

import sys

from arraybridge import Broker

framework = sys.argv[1]
broker = Broker()
with (
    broker.channel("inverted", on_peer_death="wait") as inverted,
    broker.channel("small", on_peer_death="wait").open("sender") as small,
):
    for frame, number, *_ in inverted.receiver(framework, info=True):
        small.send(frame[::8, ::8], metadata=number)
        print(int(number), flush=True)
