# SPDX-License-Identifier: Apache-2.0
"""replay: what was recorded is sent again, at the same times or faster, with the same ends of streams."""

from __future__ import annotations

import contextlib
import json
import math
import os
import reprlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypedDict, Unpack

from arraybridge import autograph
from arraybridge.arguments import check_seconds
from arraybridge.broker import Broker
from arraybridge.broker.channel import Channel
from arraybridge.broker.due import Due
from arraybridge.broker.message import Message
from arraybridge.broker.patterns.terms import Mode, Terms
from arraybridge.errors import InvalidRequest, printable
from arraybridge.recording import entry
from arraybridge.recording.container import KIND
from arraybridge.recording.reading import CHUNK_BYTES_MAX, FileMessage, Recording

_EVENT_BYTES_MAX: Final = 1 << 20
_SHOWN_MAX: Final = 8  # channels in an error
_NAP_S: Final = 3600.0  # the longest sleep between two messages; hostile times are not slept through in one call


class Replayed(NamedTuple):
    """The result of a replay.

    Attributes:
        messages: by channel, under the name that it was sent to.
        whole: False if the file ends within a record: its recorder was killed, or its disk was full.
        seconds: how long the replay took.

    Example:
        >>> from arraybridge.recording import replay
        >>> replay("run.mcap", broker=broker, rename={"frames": "test"}).messages
        {'test': 1}
    """

    messages: Mapping[str, int]
    whole: bool
    seconds: float


class ReplayWishes(TypedDict, total=False):
    """Options of replay."""

    begin: float
    end: float | None
    rename: Mapping[str, str] | None
    mode: Mode
    timeout: float | None
    chunk_bytes_max: int


class _Options(NamedTuple):
    """The same, complete."""

    begin: float = 0.0
    end: float | None = None
    rename: Mapping[str, str] | None = None
    mode: Mode = "queue"
    timeout: float | None = None
    chunk_bytes_max: int = CHUNK_BYTES_MAX

    def check(self) -> None:
        begin, end = check_seconds(self.begin, "begin"), None if self.end is None else check_seconds(self.end, "end")
        if self.rename is not None and not isinstance(self.rename, Mapping):
            raise InvalidRequest(f"rename must be a dict of new names by recorded names, not {reprlib.repr(self.rename)}")
        if end is not None and end <= begin:
            raise InvalidRequest(f"begin={self.begin} and end={self.end} must be seconds after the first message, begin before end")
        Terms(mode=self.mode).check()


def replay(
    path: str | os.PathLike[str],
    channels: Sequence[str] | None = None,
    *,
    broker: Broker | None = None,
    speed: float = 1.0,
    **wishes: Unpack[ReplayWishes],
) -> Replayed:
    """Sends the messages of a recording into channels, bit for bit, as their senders did: also the ends of streams, and senders
    that were lost (receivers get PeerGone, SENDER_ABANDONED). Receivers take them as arrays of any framework.

    A file is not trusted: it is checked before memory is allocated for what it states, and no code of it is run.

    Args:
        path: a file of `Recorder`.
        channels: those to replay, under the names that they were recorded with; None: all.
        broker: None: `Broker()`.
        speed: 2.0: twice as fast; float("inf"): as fast as the receivers take them.
        begin, end: replays what was recorded from `begin` up to `end` seconds after the first message; None: to the end of the file.
        rename: the new names of channels, by their recorded names.
        mode: of the channels, as in `Broker.channel`. A queue keeps messages until a receiver comes; a broadcast, and
            "latest", drop what is sent before one has opened.
        timeout: seconds to wait for a receiver that is slow, or absent; None: no limit.
        chunk_bytes_max: the largest chunk of the file, in bytes, that is read into memory.

    Returns:
        The number of messages by channel, and more. If the file has no end, its messages are sent up to the last whole chunk, and the channels are
        abandoned: receivers get PeerGone.

    Raises:
        InvalidRequest: the file is malformed, or has none of these channels; or an argument is invalid. BrokerTimeout: no
            room in time. OSError: the file cannot be read. Errors of `Channel.send`.

    Example:
        >>> from arraybridge.recording import replay
        >>> replay("run.mcap", broker=broker, speed=2.0, rename={"frames": "test"})
        Replayed(messages={'test': 1}, whole=True, seconds=...)
    """
    options, pace, begun = _options_of(channels, wishes), _Pace(speed), time.monotonic()
    player = _Player(broker or Broker(), options, channels)
    with Recording(os.fspath(path), options.chunk_bytes_max) as recording, player:
        _check_names(recording, [*(channels or ()), *(options.rename or ())])
        for message in recording.messages(options.begin, options.end):
            act = _act_of(recording, message, player)
            if act is not None:
                pace.wait(message.sent_ns)
                act()
        player.finish(recording.whole or options.end is not None)
        if not player.sent:
            there = ", ".join(sorted(recording.channels())[:_SHOWN_MAX]) or "none"
            raise recording.refused(f"nothing was recorded in these channels at this time; its channels are {printable(there)}")
    return Replayed(player.sent, recording.whole, time.monotonic() - begun)


def _options_of(channels: object, wishes: ReplayWishes) -> _Options:
    unknown = sorted(set(wishes) - set(_Options._fields))
    if unknown:
        raise TypeError(f"replay takes no argument {', '.join(unknown)}: there are {', '.join(_Options._fields)}")
    if isinstance(channels, str):
        raise InvalidRequest(f"channels must be a list of names, not {channels!r}: pass [{channels!r}]")
    options = _Options(**wishes)
    options.check()
    return options


def _check_names(recording: Recording, names: Sequence[str]) -> None:
    """Raises:
    InvalidRequest: no channel of the file has one of these names. Nothing is sent then, least of all into a live channel.
    """
    unknown = sorted(set(names) - recording.all_channels()) if names else []
    if unknown:
        there = ", ".join(sorted(recording.channels())[:_SHOWN_MAX]) or "none"
        raise recording.refused(f"it has no channel {printable(unknown[0])}; its channels are {printable(there)}")


class _Pace:
    """The times of sending, as fast as wanted."""

    def __init__(self, speed: float) -> None:
        if not (isinstance(speed, (int, float)) and speed > 0):
            raise InvalidRequest(f"speed must be a number above 0, or inf, not {speed!r}")
        self._speed: Final = speed
        self._first_ns: int | None = None
        self._begun = 0.0

    def wait(self, sent_ns: int) -> None:
        if math.isinf(self._speed):
            return
        if self._first_ns is None:
            self._first_ns, self._begun = sent_ns, time.monotonic()
        due = self._begun + (sent_ns - self._first_ns) / 1e9 / self._speed
        while (left := due - time.monotonic()) > 0:
            time.sleep(min(left, _NAP_S))


class _Player:
    """The sending ends, by the names that the channels were recorded with."""

    def __init__(self, broker: Broker, options: _Options, channels: Sequence[str] | None) -> None:
        self.sent: Final[dict[str, int]] = {}
        self._broker, self._options = broker, options
        self._rename: Final = dict(options.rename or {})
        self._wanted: Final = None if channels is None else set(channels)
        self._open: Final[dict[str, Channel]] = {}

    def wants(self, name: str) -> bool:
        """True if the channel of this recorded name is to be replayed."""
        return self._wanted is None or name in self._wanted

    def send(self, name: str, found: entry.Entry) -> None:
        channel = self._open.get(name)
        target = self._rename.get(name, name)
        if channel is None:
            channel = self._open[name] = self._broker.channel(target, mode=self._options.mode).open("sender")
        channel._send(Message(found.sources(), found.structure, found.metadata), Due.after(self._options.timeout))
        self.sent[target] = self.sent.get(target, 0) + 1

    def end(self, name: str, complete: bool) -> None:
        """Ends the stream of a channel; does nothing if none was sent."""
        channel = self._open.pop(name, None)
        if channel is not None:
            (channel.close if complete else channel.abandon)()

    def finish(self, complete: bool) -> None:
        for name in list(self._open):
            self.end(name, complete)

    def __enter__(self) -> _Player:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):  # only after an error is anything open
            self.finish(complete=False)


def _act_of(recording: Recording, message: FileMessage, player: _Player) -> Callable[[], None] | None:
    """The act of the player that a message of the file causes; None: there is none. It is checked before its time.

    Raises:
        InvalidRequest: it is malformed.
    """
    kind = message.channel.metadata.get(KIND)
    name = message.channel.name
    if kind == "channel" and message.channel.encoding == "safetensors":
        if not player.wants(name):
            return None
        try:
            found = entry.decoded(message.data)
        except InvalidRequest as error:
            raise recording.malformed(f"a message of channel {name[:64]!r}: {error.message}") from error
        return lambda: player.send(name, found)
    event = _event_of(message.data) if kind == "events" else None
    if event is None or event["event"] not in ("ended", "lost"):
        return None
    return lambda: player.end(event["channel"], event["event"] == "ended")


def _event_of(data: memoryview) -> dict[str, Any] | None:
    """An event of the file; None: it is malformed, and is left out."""
    if len(data) > _EVENT_BYTES_MAX:
        return None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(bytes(data))
        if isinstance(found, dict) and all(isinstance(found.get(key), str) for key in ("channel", "event")):
            return found
    return None


autograph.mark_module(__name__)
