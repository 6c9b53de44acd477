# SPDX-License-Identifier: Apache-2.0
"""The model that all programs of this example know; its weights are not here."""

import torch


def network() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
