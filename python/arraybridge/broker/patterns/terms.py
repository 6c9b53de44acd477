# SPDX-License-Identifier: Apache-2.0
"""Terms are how a process opens a channel: what it states of its capacity and mode, and the run to which it belongs."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from arraybridge import _core
from arraybridge.arguments import check_text, check_word
from arraybridge.errors import InvalidRequest

Mode = Literal["queue", "broadcast", "latest"]
OnSlow = Literal["block", "drop_oldest"]
_RUN_BYTES_MAX: Final = 64


class Terms(NamedTuple):
    """The fields are those of `Broker.channel`. None: as stated by other ends."""

    capacity: int | None = None
    mode: Mode | None = None
    on_slow: OnSlow | None = None
    replay: int | None = None
    run: str | None = None
    fresh: bool = False

    def check(self) -> None:
        """Raises:
        InvalidRequest: a value is none, or two contradict each other.
        """
        for what, value, least in ("capacity", self.capacity, 1), ("replay", self.replay, 0):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise InvalidRequest(f"{what} must be a number of arrays, at least {least}, not {value!r}")
        if self.mode is not None:
            check_word(self.mode, "mode", ["queue", "broadcast", "latest"])
        if self.on_slow is not None:
            check_word(self.on_slow, "on_slow", ["block", "drop_oldest"])
        if self.mode != "broadcast" and (self.on_slow is not None or self.replay is not None):
            raise InvalidRequest(f"on_slow and replay are for mode='broadcast', not mode={self.mode!r}")
        if self.replay is not None and self.capacity is not None and self.replay > self.capacity:
            raise InvalidRequest(f"replay={self.replay} exceeds capacity={self.capacity}: a receiver has no more arrays waiting")
        if self.mode == "latest" and self.capacity not in (None, 1):
            raise InvalidRequest(f"mode='latest' keeps one array: leave capacity={self.capacity} out")
        self._check_run()

    def open(self, core: _core.Core, name: str, sends: bool) -> _core.ChannelEnd:
        """A new end of the channel.

        Raises:
            _core.StatusError: refused.
        """
        drops = None if self.on_slow is None else self.on_slow == "drop_oldest"
        return core.open_channel(name, sends, (self.capacity or 0, self.mode or "", drops, self.replay, self.run or "", self.fresh))

    def shown(self) -> str:
        """For the channel's repr: ", broadcast, run 'monday'"."""
        mode = "" if self.mode is None else f", {self.mode}"
        return mode if self.run is None else f"{mode}, run {self.run!r}"

    def _check_run(self) -> None:
        if not isinstance(self.fresh, bool):
            raise InvalidRequest(f"fresh must be True or False, not {self.fresh!r}")
        if self.run is None:
            if self.fresh:
                raise InvalidRequest("fresh=True drops what an earlier run left: state run=, the same text in each process of one run")
            return
        if not isinstance(self.run, str) or not self.run:
            raise InvalidRequest(f"run must be a non-empty str, the same in each process of one run, not {self.run!r}")
        check_text(self.run, "run")
        if len(self.run.encode()) > _RUN_BYTES_MAX:
            raise InvalidRequest(f"run has {len(self.run.encode())} bytes, the most is {_RUN_BYTES_MAX}: pass a shorter text")
