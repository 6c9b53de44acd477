# SPDX-License-Identifier: Apache-2.0
"""The verb of the broker that moves the bytes of shares between memory and files."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from arraybridge import _core, autograph
from arraybridge.arguments import check_seconds
from arraybridge.broker.connection import Connection
from arraybridge.errors import BrokerError


class Action(IntEnum):
    """A request to the broker; the numbers are those of the protocol."""

    LIST = 1
    MOVE_OUT = 2
    MOVE_IN = 3
    KEEP = 4
    VERIFY = 5
    PIN = 6


class Stored(NamedTuple):
    """A named share that has a file, as `Broker.stored` returns it.

    Attributes:
        name: its name.
        generation: its generation.
        nbytes: bytes of the share.
        in_memory: its bytes are in memory, too.
        durable: a broker that is started later finds it in the directory.
        lost: its file was damaged and is set aside: `get` raises BrokerError until it is put again or withdrawn.

    Example:
        >>> broker.stored()
        []
    """

    name: str
    generation: int
    nbytes: int
    in_memory: bool
    durable: bool
    lost: bool


def asked(
    connection: Connection,
    action: Action,
    name: str = "",
    generation: int = 0,
    timeout: float | None = None,
    rank: tuple[int, int] = (0, 0),
) -> list[Stored]:
    """The shares that the broker answers with.

    Args:
        generation: of the share; 0: the newest.
        timeout: seconds to wait for the move; None: an hour.
        rank: of PIN: 0 for no pin, 1 for a soft and 2 for a hard one, and the priority.

    Raises:
        BrokerError: the broker refuses, or the move failed; the message says why.
    """
    timeout_s = None if timeout is None else check_seconds(timeout, "timeout")
    try:
        shares, *_ = connection.ask(lambda core: _core.tier(core, action.value, name, generation, timeout_s, rank))
    except BrokerError as error:
        if action is not Action.MOVE_OUT or error.reason != "SHARE_IN_USE":
            raise
        # This process may have dropped its arrays just now, and the broker does not know yet.
        connection.ask(lambda core: core.flush())
        shares, *_ = connection.ask(lambda core: _core.tier(core, action.value, name, generation, timeout_s))
    return [Stored._make(share) for share in shares]


autograph.mark_module(__name__)
