# SPDX-License-Identifier: Apache-2.0
"""Terms are what a server states of its service."""

from __future__ import annotations

from typing import NamedTuple

from arraybridge.arguments import check_seconds
from arraybridge.errors import InvalidRequest


class Terms(NamedTuple):
    """The fields are those of `Broker.service`. `batch` None: one request at a time."""

    retry: bool = False
    queue: int = 64
    batch: int | None = None
    within: float = 0.0

    def check(self) -> None:
        """Raises:
        InvalidRequest: a value is none.
        """
        if not isinstance(self.retry, bool):
            raise InvalidRequest(f"retry must be True or False, not {self.retry!r}")
        for what, number in ("queue", self.queue), ("batch", 1 if self.batch is None else self.batch):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise InvalidRequest(f"{what} must be a number of requests, at least 1, not {number!r}")
        if check_seconds(self.within, "within") and self.batch is None:
            raise InvalidRequest(f"within={self.within!r} is for batches: pass batch= too, the most requests of one batch")
