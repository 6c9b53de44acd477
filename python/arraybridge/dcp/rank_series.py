# SPDX-License-Identifier: Apache-2.0
"""The Checkpoints behind one checkpoint of DCP: one series for each rank, and one with the metadata."""

from __future__ import annotations

import os
from typing import Any, Final

from arraybridge.adapters import ensure_module
from arraybridge.broker.broker import Broker
from arraybridge.dcp.metadata_text import from_text, to_text
from arraybridge.errors import InvalidRequest, ShareNotFound
from arraybridge.keep.checkpoints import Checkpoints

_torch: Any = ensure_module("torch")
_KEY: Final = "metadata"
_BEHIND_MAX: Final = 3  # steps that the files of one rank may be behind those of another


class RankSeries:
    """Opens the series as they are asked for; `close` closes them.

    A step is complete when the series of metadata has it, which is saved last, and the series of each rank that it names.
    """

    def __init__(self, name: str, directory: str | os.PathLike[str], keep: int | None, broker: Broker | None) -> None:
        self._name, self._directory, self._broker = name, directory, broker or Broker()
        self._keep = None if keep is None else keep + _BEHIND_MAX
        self._open: dict[str, Checkpoints] = {}
        self._named(name)

    def of(self, rank: int) -> Checkpoints:
        return self._named(f"{self._name}-rank{rank}")

    @property
    def of_metadata(self) -> Checkpoints:
        return self._named(self._name)

    def save_metadata(self, step: int, metadata: Any) -> None:
        """Completes the step."""
        self.of_metadata.save(step, {_KEY: _torch.frombuffer(bytearray(to_text(metadata).encode()), dtype=_torch.uint8)})

    def metadata(self, step: int) -> Any:
        """DCP's Metadata of the step.

        Raises:
            ShareNotFound: the step is not complete. InvalidRequest: its metadata is damaged.
        """
        state = self.of_metadata.load(step)
        if not isinstance(state, dict) or _KEY not in state:
            raise InvalidRequest(f"step {step} of {self._name!r} was not saved by DCP: read it by arraybridge.Checkpoints")
        metadata = from_text(bytes(state[_KEY]).decode())
        for rank in sorted({stored.rank for stored in metadata.storage_data.values()}):
            if step not in self.of(rank).steps(memory=True):
                raise ShareNotFound(f"step {step} of {self._name!r} is not complete: what rank {rank} saved is gone")
        return metadata

    def latest(self) -> int | None:
        """The latest complete step."""
        for step in sorted(self.of_metadata.steps(memory=True), reverse=True):
            try:
                self.metadata(step)
            except (ShareNotFound, InvalidRequest):
                continue
            return step
        return None

    def flush(self) -> None:
        for series in self._open.values():
            series.flush()

    def close(self) -> None:
        for series in self._open.values():
            series.close()
        self._open.clear()

    def _named(self, name: str) -> Checkpoints:
        if name not in self._open:
            self._open[name] = Checkpoints(name, self._directory, keep=self._keep, broker=self._broker)
        return self._open[name]


def step_of(checkpoint_id: str | os.PathLike[str] | int | None) -> int:
    """The step that `checkpoint_id` names.

    Raises:
        InvalidRequest: it is no whole number.
    """
    try:
        return int(str(checkpoint_id))
    except ValueError:
        text = f"checkpoint_id must be the number of the step, such as 100, not {checkpoint_id!r}: the folder is the storage's"
        raise InvalidRequest(text) from None
