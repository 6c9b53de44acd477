# SPDX-License-Identifier: Apache-2.0
"""Answers requests of web.py, up to 32 in one call of the model; swaps to the newest version between two calls."""

import torch
from model import network

from arraybridge import Broker
from arraybridge.integrations.torch import attach

broker = Broker(client="model")
with torch.device("meta"):
    model = network().eval()
follower = attach(model, broker.open("model", wait=60), follow=True)
with torch.no_grad(), broker.service("predict", batch=32, within=0.002, retry=True) as service:
    for batch in service.requests("torch"):
        scores = model(batch.stack())  # one version for all of them
        batch.reply([{"scores": row, "generation": follower.generation} for row in scores])
