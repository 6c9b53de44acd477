# SPDX-License-Identifier: Apache-2.0
"""BrokerStorageReader: dcp.load from broker memory, or from the disk if it is gone there."""

from __future__ import annotations

import io
import os
from typing import Any

from arraybridge.adapters import ensure_module
from arraybridge.broker.broker import Broker
from arraybridge.dcp.metadata_text import Stored
from arraybridge.dcp.rank_series import RankSeries, step_of
from arraybridge.errors import ShareNotFound

_torch: Any = ensure_module("torch")
_dcp: Any = ensure_module("torch.distributed.checkpoint")


class BrokerStorageReader(_dcp.StorageReader):  # type: ignore[misc]
    """The storage for `dcp.load` of a step that `BrokerStorageWriter` has saved, by as many ranks as there are now.

    A part that lies in broker memory is read there, without the disk; else its file is read once for all ranks of the host.
    `checkpoint_id` is the number of the step; without one it is the latest that is complete. DCP unpickles the objects of
    a state that are no tensors: load a state of people whom you would let run code.

    Args:
        name, directory, broker: as for the writer.

    Attributes:
        step: of the last load; before one, of the next, where None is the latest.

    Example:
        reader = BrokerStorageReader("run7", "/data/checkpoints")
        if (step := reader.latest()) is not None:
            dcp.load(state_dict, checkpoint_id=str(step), storage_reader=reader)
    """

    def __init__(self, name: str, directory: str | os.PathLike[str], *, broker: Broker | None = None) -> None:
        self._series = RankSeries(name, directory, None, broker)
        self.step: int | None = None
        self._stored: dict[Any, Stored] = {}

    def latest(self) -> int | None:
        """The latest step that all ranks have saved, as this host sees it; None: there is none. With several hosts let one rank
        ask, and tell the others.
        """
        return self._series.latest()

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """DCP's: the next load is of this step, or of the latest.

        Raises:
            InvalidRequest: it is no number of a step.
        """
        self.step = None if checkpoint_id is None else step_of(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """DCP's: whether this is the number of a step."""
        return str(checkpoint_id).isdecimal()

    def read_metadata(self, *args: Any) -> Any:
        """DCP's.

        Raises:
            ShareNotFound: there is no such step, or not all of it. InvalidRequest: its metadata is damaged.
        """
        if self.step is None:
            self.step = self.latest()
        if self.step is None:
            raise ShareNotFound("no step is complete: nothing was saved here, or some rank did not finish")
        return self._series.metadata(self.step)

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """DCP's."""
        self._stored = metadata.storage_data

    def prepare_local_plan(self, plan: Any) -> Any:
        """DCP's: the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """DCP's: the plans as they are."""
        return plans

    def read_data(self, plan: Any, planner: Any) -> Any:
        """DCP's: copies each part that the plan asks for.

        Raises:
            ShareNotFound: what a rank saved is gone. InvalidRequest: its file is damaged.
        """
        assert self.step is not None
        states: dict[int, dict[str, Any]] = {}
        for item in plan.items:
            rank, key = self._stored[item.storage_index]
            if rank not in states:
                states[rank] = self._series.of(rank).load(self.step, "torch")
            value = states[rank][key]
            if item.type == _dcp.planner.LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(value.numpy().tobytes()))
                continue
            for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                value = value.narrow(dimension, start, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(value)
            planner.commit_tensor(item, target)
        done = _torch.futures.Future()
        done.set_result(None)
        return done
