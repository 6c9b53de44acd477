# SPDX-License-Identifier: Apache-2.0
"""A Batch is several requests of a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from arraybridge import autograph
from arraybridge.broker.batches.stacking import stacked
from arraybridge.broker.services.request import Request
from arraybridge.errors import InvalidRequest


class Batch(Sequence[Request]):
    """Several requests, of a service with `batch=`: a sequence of Request."""

    def __init__(self, requests: list[Request]) -> None:
        self._requests = requests

    def __getitem__(self, index: Any) -> Any:
        return self._requests[index]

    def __len__(self) -> int:
        return len(self._requests)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} requests>"

    @property
    def values(self) -> list[Any]:
        """The value of each request."""
        return [request.value for request in self._requests]

    def stack(self) -> Any:
        """The values as one array with a new first dimension, of length `len(batch)`: a copy. Of trees, the tree of such arrays.

        Raises:
            InvalidRequest: the shapes or dtypes differ, or the trees do; `Batch.values` has each.
        """
        return stacked(self.values)

    def reply(self, results: Any) -> None:
        """Answers each request with its result: `results[n]` of a sequence, or of the first dimension of an array.

        Raises:
            InvalidRequest: the number of results is another one. Errors of `Request.reply`.
        """
        if isinstance(results, Mapping):
            raise InvalidRequest("reply takes a sequence of results, one for each request, not a dict: pass a list of dicts, [{...}, ...]")
        if not hasattr(results, "__len__"):
            raise InvalidRequest(f"reply takes a sequence of results, one for each request, not {type(results).__name__}")
        if len(results) != len(self):
            raise InvalidRequest(f"reply takes one result for each of the {len(self)} requests, not {len(results)}")
        for request, result in zip(self._requests, results, strict=True):
            if not request.answered:
                request.reply(result)

    def fail(self, why: str) -> None:
        """`Request.fail` of each that is not answered."""
        for request in self._requests:
            if not request.answered:
                request.fail(why)


autograph.mark_module(__name__)
