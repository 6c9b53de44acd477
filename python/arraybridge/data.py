# SPDX-License-Identifier: Apache-2.0
"""Batches of torch's DataLoader that are born in broker memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import arraybridge.multiprocessing as passing
from arraybridge.adapters import ensure_module
from arraybridge.broker.broker import Broker


def collate(batch: Sequence[Any], *, broker: Broker | None = None) -> Any:
    """As `torch.utils.data.default_collate`; in a worker of a DataLoader the batch's tensors are born in broker memory.

    They reach the loader's process as references (`arraybridge.multiprocessing`): the samples are copied once, into the
    batch, and nobody writes a batch into a pipe or opens a descriptor for each tensor. With `pin_memory=True` the
    loader's process copies each batch into pinned memory of its own, as it does after any `collate_fn`: a registration
    in a worker would not hold in that process.

    Args:
        batch: the samples: tensors, NumPy arrays, numbers, strings, and any nesting of dicts, lists and tuples of them.
        broker: holds the batches; None: that of `arraybridge.multiprocessing.install`, or `Broker()`.

    Raises:
        TypeError, RuntimeError: as `default_collate`. OutOfMemory: no room for the batch until the Broker's timeout.

    Example:
        loader = torch.utils.data.DataLoader(images, batch_size=32, num_workers=4, collate_fn=arraybridge.data.collate)
    """
    torch: Any = ensure_module("torch")
    if torch.utils.data.get_worker_info() is None:
        return torch.utils.data.default_collate(batch)
    where = passing.ensure_installed(broker)
    ways = torch.utils.data._utils.collate.default_collate_fn_map

    def stacked(tensors: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
        first = tensors[0]
        ordinary = all(
            type(each) is torch.Tensor and each.layout == torch.strided and each.device.type == "cpu" and not each.requires_grad
            and each.dtype == first.dtype and each.shape == first.shape for each in tensors
        )  # fmt: skip
        if not ordinary or first.numel() == 0 or first.is_quantized:
            return ways[torch.Tensor](tensors, collate_fn_map=collate_fn_map)
        batch = torch.stack(tuple(tensors), 0, out=where.empty((len(tensors), *first.shape), first.dtype, "torch"))
        passing.give(batch)
        return batch

    return torch.utils.data._utils.collate.collate(batch, collate_fn_map={**ways, torch.Tensor: stacked})
