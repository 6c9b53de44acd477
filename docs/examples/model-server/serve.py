# SPDX-License-Identifier: Apache-2.0
"""Answers with the newest version of the model; swaps between two answers. Start as many as you like: the weights exist once."""

import os
import sys
import time

import torch
from model import network

from arraybridge import Broker
from arraybridge.integrations.torch import attach

until = time.monotonic() + float(sys.argv[1]) if len(sys.argv) > 1 else float("inf")
with torch.device("meta"):
    model = network().eval()  # allocates nothing
follower = attach(model, Broker().open("model", wait=60), follow=True)  # its parameters are the broker's memory, read-only
told = None
while time.monotonic() < until:
    with torch.no_grad():
        model(torch.ones(1, 512))  # a request; the version before is free when no server has it any more
    if follower.generation != told:
        told = follower.generation
        print(f"server {os.getpid()} has generation {told}", flush=True)
    time.sleep(0.01)  # until the next request
