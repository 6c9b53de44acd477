# SPDX-License-Identifier: Apache-2.0
"""BrokerStorageWriter: dcp.save that returns when the state is in broker memory."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Self

from arraybridge.adapters import ensure_module
from arraybridge.broker.broker import Broker
from arraybridge.dcp.metadata_text import Stored
from arraybridge.dcp.rank_series import RankSeries, step_of
from arraybridge.errors import InvalidRequest

_torch: Any = ensure_module("torch")
_dcp: Any = ensure_module("torch.distributed.checkpoint")


class BrokerStorageWriter(_dcp.StorageWriter):  # type: ignore[misc]
    """The storage for `dcp.save` and `dcp.async_save`. Each rank has its part in broker memory when `save` returns, and a thread
    writes it to the disk behind, as `Checkpoints` does.

    Use one of these for all steps of a run. `checkpoint_id` is the number of the step, and each is later than the one before;
    a step that some rank did not finish, because it died, is saved again. The ranks of one host use one broker; of several hosts the
    directory is one that all see.

    Args:
        name, directory, broker: of the series, as for `Checkpoints`; the parts of a rank are the series NAME-rankN.
        keep: how many of the latest steps stay on the disk, and up to three more; None: all.

    Raises:
        InvalidRequest: a name or number that cannot be. OSError: the directory cannot be made or read.

    Example:
        writer = BrokerStorageWriter("run7", "/data/checkpoints")
        dcp.save(state_dict, checkpoint_id="100", storage_writer=writer)
        writer.close()
    """

    def __init__(self, name: str, directory: str | os.PathLike[str], *, keep: int | None = 3, broker: Broker | None = None) -> None:
        if keep is not None and (not isinstance(keep, int) or isinstance(keep, bool) or keep < 1):
            raise InvalidRequest(f"keep must be 1 or more steps, or None for all, not {keep!r}")
        self._series = RankSeries(name, directory, keep, broker)
        self._step = -1

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """DCP's: the next save is of this step.

        Raises:
            InvalidRequest: it is no number of a step.
        """
        self._step = step_of(checkpoint_id)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """DCP's: whether this is the number of a step."""
        return str(checkpoint_id).isdecimal()

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """DCP's.

        Raises:
            InvalidRequest: `use_collectives=False`.
        """
        if kwargs.get("use_collectives") is False:
            raise InvalidRequest("BrokerStorageWriter needs use_collectives=True: a step is complete when all ranks have saved it")

    def prepare_local_plan(self, plan: Any) -> Any:
        """DCP's: the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        """DCP's, on the coordinator, before any rank writes: from now on the step is not complete.

        Raises:
            InvalidRequest: a complete step is as late.
        """
        latest = self._series.latest() if self._step <= max(self._series.of_metadata.steps(memory=True), default=-1) else None
        if latest is not None and latest >= self._step:
            text = f"step {self._step} is not later than {latest}, the latest that is complete: go back with rewind({self._step - 1})"
            raise InvalidRequest(text)
        self._series.of_metadata.rewind(self._step - 1)
        return [dataclasses.replace(plan, storage_data=rank) for rank, plan in enumerate(plans)]

    def write_data(self, plan: Any, planner: Any) -> Any:
        """DCP's: copies the rank's part into broker memory.

        Raises:
            Errors of `Checkpoints.save`.
        """
        rank: int = plan.storage_data
        state: dict[str, Any] = {}
        results: list[Any] = []
        for item in plan.items:
            value = planner.resolve_data(item)
            if item.type == _dcp.planner.WriteItemType.BYTE_IO:
                array = _torch.frombuffer(bytearray(value.getvalue()), dtype=_torch.uint8)
            else:
                array = value.detach()
            key = _key_of(item.index)
            state[key] = array
            results.append(_dcp.storage.WriteResult(item.index, array.nbytes, Stored(rank, key)))
        series = self._series.of(rank)
        series.rewind(self._step - 1)
        series.save(self._step, state)
        done = _torch.futures.Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Any, results: list[list[Any]]) -> None:
        """DCP's, on the coordinator, when every rank has written: now the step is complete."""
        metadata.storage_data = {result.index: result.storage_data for of_rank in results for result in of_rank}
        self._series.save_metadata(self._step, metadata)

    def rewind(self, step: int) -> None:
        """Removes every later step, so that the run goes on from this one. On all ranks, before any saves."""
        self._series.of_metadata.rewind(step)

    def flush(self) -> None:
        """Returns when all that this process has saved is on the disk.

        Raises:
            OSError: something could not be written; the latest state stays in broker memory.
        """
        self._series.flush()

    def close(self) -> None:
        """`flush`, and lets another process save. The latest step stays in broker memory."""
        self._series.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _key_of(index: Any) -> str:
    """The path of the tensor, with the place of this part of it."""
    at = index.offset
    return f"{index.fqn}@{','.join(map(str, at))}" if at and any(at) else index.fqn
