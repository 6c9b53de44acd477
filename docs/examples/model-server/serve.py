# SPDX-License-Identifier: Apache-2.0
"""Answers with the newest version of the model; swaps between two answers. Start as many as you like: the weights exist once."""

import os
import sys
import time

import torch
from model import network

from arraybridge import Broker, BrokerTimeout
from arraybridge.integrations.torch import attach

until = time.monotonic() + float(sys.argv[1]) if len(sys.argv) > 1 else float("inf")
with torch.device("meta"):
    model = network().eval()  # allocates nothing
bundle = Broker().open("model", wait=60)
while True:
    attach(model, bundle, access="shared")  # its parameters are the broker's memory, read-only
    print(f"server {os.getpid()} has generation {bundle.share.generation}", flush=True)
    newer = None
    while newer is None and time.monotonic() < until:
        with torch.no_grad():
            model(torch.ones(1, 512))  # a request
        try:
            newer = bundle.wait_newer(0.1)
        except BrokerTimeout:
            pass
    if newer is None:
        break
    bundle = newer  # the version before is freed when no server has it any more
