# SPDX-License-Identifier: Apache-2.0
"""The threads of a Caller, or of a Service, that read what the other side sends."""

from __future__ import annotations

import weakref
from typing import Any

from arraybridge.broker.channel import Channel
from arraybridge.broker.delivery import Acquired
from arraybridge.broker.services.mailbox import next_of
from arraybridge.errors import BrokerError, ChannelClosed, PeerGone


def read_letters(of: weakref.ref[Any], box: weakref.ref[Channel]) -> None:
    """Reads until the reader, or its end of the channel, is closed or dropped; holds none of them while it waits.

    Args:
        of: the reader: a Caller or a Service.
    """
    reader = of()
    while reader is not None and not reader.ended:
        wishes, message, noticed = reader._wishes(), None, False
        del reader
        try:
            message = next_of(box, *wishes)
        except (PeerGone, ChannelClosed) as told:
            if told.reason == "CHANNEL_NOT_OPEN":
                return
            noticed = True
        except BrokerError as lost:
            if (reader := of()) is not None:
                reader._fail(lost)
            return
        reader = of()
        if reader is not None:
            _handle(reader, message, noticed)
        del message


def wait_for_ends(of: weakref.ref[Any], presence: weakref.ref[Channel]) -> None:
    """Waits until an end of the presence is closed or lost, and tells the Caller; returns when it, or its own end, is gone."""
    while True:
        try:
            next_of(presence, False, None)
        except (PeerGone, ChannelClosed) as told:
            if told.reason == "CHANNEL_NOT_OPEN" or (caller := of()) is None:
                return
            caller._announce_again()
            del caller
        except BrokerError:
            return  # the other thread is told the same


def _handle(reader: Any, message: Acquired | None, noticed: bool) -> None:
    try:
        if noticed:
            reader._suspicion.arise()
        else:
            reader._received(message)
        reader._examine()
    except BrokerError as error:
        reader._fail(error)
