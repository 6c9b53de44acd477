# SPDX-License-Identifier: Apache-2.0
"""Follows the trainer: takes each newer generation of its weights, and may skip some."""

import torch

from arraybridge import Broker
from arraybridge.integrations.torch import attach

with torch.device("meta"):
    net = torch.nn.Linear(256, 256)
bundle = Broker().open("policy", wait=60)
while True:
    attach(net, bundle, access="shared")
    print(f"generation {bundle.share.generation}: norm {net.weight.norm().item():.3f}", flush=True)
    if bundle.metadata == b"last":
        break
    bundle = bundle.wait_newer(60)
