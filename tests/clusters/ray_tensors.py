"""An actor of the tests whose tensors pass by Ray Direct Transport; Ray checks the transport's name when it is imported."""

from __future__ import annotations

from typing import Any

import numpy as np
import ray
import torch

import arraybridge.integrations.ray as abr

abr.register()


@ray.remote(enable_tensor_transport=True)
class Tensors:
    """An actor whose tensors pass by the transport "arraybridge"."""

    def __init__(self) -> None:
        self.kept: Any = None

    @ray.method(tensor_transport="arraybridge")
    def make(self, count: int) -> Any:
        return torch.ones(count)

    @ray.method(tensor_transport="arraybridge")
    def fail(self) -> Any:
        raise ValueError("broken")

    def numbers(self) -> Any:
        return np.ones(1 << 20)

    def sum(self, tensor: Any) -> float:
        self.kept = tensor
        return float(tensor.sum())

    def sum_kept(self) -> float:
        return float(self.kept.sum())
