# SPDX-License-Identifier: Apache-2.0
"""Smooths images, without an end of its own: the caller says when it is enough."""

import torch

from arraybridge import Broker

with Broker(client="smoother").service("smooth") as service:
    for request in service.requests("torch"):
        image, steps = request.value[None, None].clone(), 0
        while request.stream(image[0, 0]):
            steps += 1
            image = torch.nn.functional.avg_pool2d(image, 3, stride=1, padding=1, count_include_pad=False)
        print(f"the caller has stopped; {steps} steps were sent", flush=True)
