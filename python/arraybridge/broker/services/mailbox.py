# SPDX-License-Identifier: Apache-2.0
"""A Mailbox is one end of a channel of a service: it sends letters, or receives them.

A mailbox with one receiver, its owner, is made by this owner before others learn its name, and has CAPACITY. So another
process that opens it can tell whether the owner lives: a dead owner's channel has a notice of its end, or is gone, and then
opening makes a new one of another capacity.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Final, Literal

from arraybridge import _core
from arraybridge.broker.channel import Channel, Role
from arraybridge.broker.delivery import Acquired
from arraybridge.broker.due import Due
from arraybridge.broker.message import Message
from arraybridge.broker.patterns.terms import Mode, Terms
from arraybridge.broker.services.letters import Letter
from arraybridge.errors import BrokerError, ChannelClosed, PeerGone, from_status

if TYPE_CHECKING:
    from arraybridge.broker.broker import Broker

CAPACITY: Final = 7  # no other channel has it by default, and limits.channel_capacity_max is hardly less
_EMPTY: Final = "CHANNEL_EMPTY"
_AT_ONCE: Final = Due.after(0)
Place = Literal["tickets", "presence", "answers", "requests"]


def channel_of(service: str, place: Place, owner: str = "") -> str:
    """The name of a channel of a service."""
    return f"service/{service}/{place}" + (f"/{owner}" if owner else "")


class Mailbox:
    """Thread-safe. Open from the constructor on, which raises what `Channel.open` does.

    Args:
        name: of `channel_of`.
        capacity, mode: None: as another end states.
    """

    def __init__(self, broker: Broker, name: str, role: Role, capacity: int | None = None, mode: Mode | None = None) -> None:
        self._channel = Channel(broker, name, Terms(capacity, mode))
        self._role: Final = role
        self._channel.open(role)

    @classmethod
    def to(cls, broker: Broker, name: str) -> Mailbox | None:
        """The sender's end of a mailbox that another process owns; None: its owner has ended."""
        opened = cls(broker, name, "sender")
        if opened.owner_is_gone():
            opened.discard()
            return None
        return opened

    @property
    def end(self) -> _core.ChannelEnd:
        """It is closed by an owner of the mailbox that no longer exists, so that a thread that waits in it returns."""
        return self._channel._opened(self._role)

    @property
    def channel(self) -> Channel:
        return self._channel

    def post(self, letter: Letter, content: Message | None = None, due: Due = _AT_ONCE) -> None:
        """Raises:
        Errors of `Channel.send`: nothing was sent.
        """
        self._channel._send(letter.message(content), due)

    def try_post(self, letter: Letter) -> bool:
        """False: there is no room, or the receiver is gone."""
        try:
            self.post(letter)
        except BrokerError:
            return False
        return True

    def owner_is_gone(self) -> bool:
        """True if the one receiver of this mailbox has closed it, has died or was never there."""
        end = self._channel._opened("sender")
        if end.capacity != CAPACITY:
            return True
        try:
            end.check(False, 0)
        except _core.StatusError as status:
            if isinstance(from_status(status), PeerGone | ChannelClosed):
                return True
            raise self._channel._error_of("sender", end, status) from None
        return False

    def discard(self) -> None:
        """Closes, and drops what a receiver that is gone has not received: without it, and without ends, the channel is gone."""
        self.abandon()
        with contextlib.suppress(BrokerError):
            self._channel.drain()

    def close(self) -> None:
        with contextlib.suppress(BrokerError):
            self._channel.close()

    def abandon(self) -> None:
        """Closes so that each of the other ends is told, not only of the last one."""
        with contextlib.suppress(BrokerError):
            self._channel.abandon()


def next_of(of: weakref.ref[Channel], private: bool, seconds: float | None) -> Acquired | None:
    """The next message; None: none has come within `seconds`. Holds no Channel while it waits.

    Raises:
        Errors of `Channel.receive`.
    """
    channel = of()
    if channel is None:
        raise ChannelClosed("the channel was dropped here", reason="CHANNEL_NOT_OPEN")
    end = channel._opened("receiver")
    del channel
    try:
        return end.receive(private, seconds, False)
    except _core.StatusError as status:
        if status.reason == _EMPTY:
            return None
        # No variable of this frame may hold the error: its traceback holds the frame, and so the end.
        raise _error_of(of(), end, status) from None


def _error_of(channel: Channel | None, end: _core.ChannelEnd, status: _core.StatusError) -> BrokerError:
    if channel is None:
        return ChannelClosed("the channel was dropped here", reason="CHANNEL_NOT_OPEN")
    return channel._error_of("receiver", end, status)
