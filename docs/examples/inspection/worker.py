# SPDX-License-Identifier: Apache-2.0
"""One of several workers: PyTorch finds the brightness of each tile of a frame. A worker sends the sequence of its frame on."""

import torch

from arraybridge import Broker

torch.set_num_threads(1)
broker = Broker()
# `tiles` is closed first: a process that is killed before `frames` is closed leaves the end of the stream to the next one.
with (
    broker.channel("frames", on_peer_death="wait") as frames,
    broker.channel("tiles", on_peer_death="wait").open("sender") as tiles,
):
    frames.open("receiver")
    print("ready", flush=True)
    for frame in frames.receiver("torch", info=True):
        means = frame.array.to(torch.float32).reshape(6, 80, 8, 80).mean(dim=(1, 3))
        tiles.send(means, metadata={"sequence": frame.sequence, "number": frame.metadata})
        print(frame.metadata, flush=True)
