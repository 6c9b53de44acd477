# SPDX-License-Identifier: Apache-2.0
"""A Due is the end of a wait that several calls share."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from arraybridge.arguments import check_seconds

SECONDS_MAX: Final = 365 * 86400  # a longer wait has no limit


class Due(NamedTuple):
    """The end of a wait; None: no limit."""

    at: float | None
    seconds: float | None  # of the whole wait

    @classmethod
    def after(cls, timeout: float | None) -> Due:
        """Raises:
        InvalidRequest: `timeout` is not a number of seconds.
        """
        seconds = None if timeout is None else check_seconds(timeout, "timeout")
        return NEVER if seconds is None or seconds > SECONDS_MAX else cls(time.monotonic() + seconds, seconds)

    def left(self) -> float | None:
        return None if self.at is None else max(0.0, self.at - time.monotonic())

    def over(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at


NEVER: Final = Due(None, None)
