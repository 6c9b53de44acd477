# SPDX-License-Identifier: Apache-2.0
"""Publishes the weights of a model as one share, a bundle. Run it again for the next version."""

import sys
import time

import torch
from model import network

from arraybridge import Broker
from arraybridge.integrations.torch import publish

broker = Broker()
torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else time.time_ns())
publish(network(), "model", broker=broker, replace=True)
print(f"published generation {broker.open('model').share.generation}")
