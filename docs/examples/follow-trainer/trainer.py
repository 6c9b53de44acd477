# SPDX-License-Identifier: Apache-2.0
"""Trains a network, and publishes it after each step as the next generation of the bundle "policy"."""

import sys

import torch

from arraybridge import Broker
from arraybridge.integrations.torch import publish

net = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
broker = Broker()
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
for step in range(1, steps + 1):
    optimizer.zero_grad()
    loss = net(torch.randn(32, 256)).square().mean()
    loss.backward()
    optimizer.step()
    publish(net, "policy", broker=broker, replace=True, metadata=b"last" if step == steps else b"")
    print(f"step {step}: loss {loss.item():.3f}", flush=True)
