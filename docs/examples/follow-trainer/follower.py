# SPDX-License-Identifier: Apache-2.0
"""Follows the trainer: each answer comes from the newest whole generation of its weights, which may skip some."""

import time

import torch

from arraybridge import Broker
from arraybridge.integrations.torch import attach

with torch.device("meta"):
    net = torch.nn.Linear(256, 256)
follower = attach(net, Broker().open("policy", wait=60), follow=True)
told = last = None
while last != b"last":
    net(torch.ones(1, 256))  # an answer
    with follower.reading() as bundle:  # no swap in here
        generation, last, norm = bundle.share.generation, bundle.metadata, net.weight.norm().item()
    if generation != told:
        print(f"generation {generation}: norm {norm:.3f}", flush=True)
    told = generation
    time.sleep(0.001)  # until the next request
