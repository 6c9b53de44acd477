# SPDX-License-Identifier: Apache-2.0
"""Claim: one thread of all processes makes the share of a name, and the others wait for it."""

from __future__ import annotations

import contextlib
import threading
from typing import Self

from arraybridge import autograph
from arraybridge.broker.session import Session
from arraybridge.errors import BrokerError


class Claim:
    """The right to make the share of a name, which one thread of all processes has at a time. Its holder, while it lives,
    renews it; it ends with the process, and `still_s` after the process has begun to stand still.

    Args:
        newer_than: the generation that is not enough; 0: any share of this name is.
    """

    def __init__(self, session: Session, name: str, newer_than: int, still_s: float) -> None:
        self._connection, self._name, self._number = session._connection, name, 0
        self._newer_than, self._still_s = newer_than, still_s
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="arraybridge-claim", daemon=True)

    def is_granted(self, wait: float) -> bool:
        """False: a newer share is there. Renews a claim that is held.

        Raises:
            BrokerTimeout, ShareNotFound: another thread has it.
        """
        held = self._number
        self._number = self._connection.ask(lambda core: core.claim(self._name, self._newer_than, wait, self._still_s, held))
        return self._number != 0

    def __enter__(self) -> Self:
        self._renewer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._renewer.join()
        with contextlib.suppress(BrokerError):  # the broker has ended
            self._connection.ask(lambda core: core.release_claim(self._number))

    def _renew(self) -> None:
        while not self._ended.wait(self._still_s / 5):
            with contextlib.suppress(BrokerError):
                self.is_granted(0.0)


autograph.mark_module(__name__)
