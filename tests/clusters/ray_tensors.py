# SPDX-License-Identifier: Apache-2.0
"""An actor of the tests whose tensors pass by Ray Direct Transport; Ray checks the transport's name when it is imported."""

from __future__ import annotations

from typing import Any

import numpy as np
import ray
import torch
from ray.experimental import set_target_for_ref

import arraybridge.integrations.ray as abr

abr.register()


@ray.remote
def nested(box: list[Any]) -> float:
    """A task reads a tensor inside of its argument; Ray passes none as an argument of its own to tasks."""
    return float(ray.get(box[0]).sum())


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

    def into(self, box: list[Any]) -> tuple[float, bool]:
        """The sum of a tensor that is received into memory of the broker, and whether it is that memory."""
        buffer = abr.empty(box[1], "float32", "torch")
        set_target_for_ref(box[0], [buffer])
        got = ray.get(box[0])
        return float(buffer.sum()), got.data_ptr() == buffer.data_ptr()

    def sum_kept(self) -> float:
        return float(self.kept.sum())
