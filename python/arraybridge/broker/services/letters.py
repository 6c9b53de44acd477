# SPDX-License-Identifier: Apache-2.0
"""A Letter is what travels between a caller and a server of a service, beside the arrays: the metadata of a message."""

from __future__ import annotations

import functools
import re
import time
from typing import Final, NamedTuple

from arraybridge import _core
from arraybridge.broker.due import SECONDS_MAX
from arraybridge.broker.message import Message

TICKET: Final = "ticket"  # caller to any server: a request waits
ASK: Final = "ask"  # server to caller: may I execute it?
GO: Final = "go"  # caller to server: execute it; here it is
NO: Final = "no"  # caller to server: it is over, or another server has it
MORE: Final = "more"  # caller to server: `room` further items of the answer may come
CANCEL: Final = "cancel"  # caller to server: the caller does not wait for the answer
BACK: Final = "back"  # server to caller: I have not executed it, and will not
ANSWER: Final = "answer"  # server to caller: the result
ITEM: Final = "item"  # server to caller: a part of the result
END: Final = "end"  # server to caller: there are no further items
FAILED: Final = "failed"  # server to caller: there is none
BYE: Final = "bye"  # server to caller: I end; `held`: the requests that I may have executed in part
PATIENCE_S: Final = 5.0  # how long a server waits for a caller that lives and does not answer: it was stopped, or has no memory
_NS: Final = 1_000_000_000
_PEER: Final = re.compile("[0-9A-Za-z_-]{0,64}")


class Letter(NamedTuple):
    """`peer` is the caller in letters to servers, the server in letters to callers."""

    kind: str
    peer: str
    number: int = 0  # of the request, in its caller
    due: float = 0.0  # the end of the caller's wait, as time.monotonic has it; 0: none
    text: str = ""  # why there is no result
    retry: bool = False  # the server states that a request may be executed again
    held: tuple[int, ...] = ()
    room: int = 0  # in "go": for how many items the caller has room; 0: it takes one answer alone

    def message(self, content: Message | None = None) -> Message:
        """The message that carries it, with arrays or without."""
        kind, peer, number, due, text, retry, held, room = self
        metadata = _core.letter((kind, peer, number, round(due * _NS), text.encode(errors="replace"), retry, held, room))
        return (content or _empty())._replace(metadata=metadata)


def age_s(info: _core.ShareInfo) -> float:
    """How long ago a letter was sent."""
    return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - info.sent[2]) / _NS if info.sent else 0.0


def read(metadata: bytes) -> Letter | None:
    """None: it is none. It comes from another process."""
    fields = _core.read_letter(metadata)
    if fields is None:
        return None
    kind, peer, number, due_ns, text, retry, held, room = fields
    if not _PEER.fullmatch(peer):  # it is a part of the name of a channel
        return None
    due = due_ns / _NS
    return Letter(kind, peer, number, due if due < time.monotonic() + SECONDS_MAX else 0.0, text, retry, held, room)


@functools.cache
def _empty() -> Message:
    return Message.of({}, None)
