# SPDX-License-Identifier: Apache-2.0
"""Trains a small model for 20 steps, or those that are left: train.py FOLDER."""

import sys
import time

import torch

from arraybridge import Checkpoints

model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters())
first = 0

with Checkpoints("example", sys.argv[1]) as checkpoints:
    began = time.perf_counter()
    if (found := checkpoints.latest("torch")) is None:
        print("begins at step 0", flush=True)
    else:
        model.load_state_dict(found.state["model"])
        optimizer.load_state_dict(found.state["optimizer"])
        first = found.step + 1
        print(f"goes on after step {found.step}, which it got in {(time.perf_counter() - began) * 1e3:.1f} ms", flush=True)
    for step in range(first, 21):
        inputs = torch.randn(32, 64)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        checkpoints.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        print(f"finished step {step}", flush=True)
