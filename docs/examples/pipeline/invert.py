# SPDX-License-Identifier: Apache-2.0
"""The second stage: PyTorch inverts each frame, and writes the result into broker memory."""

import torch

from arraybridge import Broker

broker = Broker()
# `inverted` is closed first: a process that is killed before `raw` is closed leaves the end of the stream to the next one.
with (
    broker.channel("raw", on_peer_death="wait") as raw,
    broker.channel("inverted", on_peer_death="wait").open("sender") as inverted,
):
    for frame, number, *_ in raw.receiver("torch", info=True):
        result = broker.empty(frame.shape, "uint8", "torch")
        torch.bitwise_not(frame, out=result)
        inverted.send(result, metadata=number)
        print(int(number), flush=True)
