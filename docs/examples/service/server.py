# SPDX-License-Identifier: Apache-2.0
"""Inverts images. An image without light takes it very long."""

import os
import time

import torch

from arraybridge import Broker

with Broker(client=f"server {os.getpid()}").service("invert") as service:
    os.write(1, f"server {os.getpid()} serves\n".encode())
    for request in service.requests("torch"):
        if not request.value.any():
            os.write(1, f"server {os.getpid()} begins with a dark image\n".encode())
            time.sleep(3600)
        request.reply({"image": torch.bitwise_not(request.value), "by": os.getpid()})
