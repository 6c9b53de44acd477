# SPDX-License-Identifier: Apache-2.0
"""A Tee sends each array into a channel, and the same bytes into a second one, for a recorder or a viewer that must not take
arrays from the first one's receivers, nor delay its senders.
"""

from __future__ import annotations

from typing import Any, Final, Self

from arraybridge import autograph
from arraybridge.broker.channel import Channel
from arraybridge.broker.due import Due
from arraybridge.broker.message import Message
from arraybridge.broker.patterns.metadata import encoded
from arraybridge.broker.placing import source_of_share
from arraybridge.errors import BrokerError

_LIFETIME_S: Final = 60.0  # of a share whose sender was killed before it withdrew it


class Tee:
    """The sending end of a channel, and of its copy; made by `tee`. Thread-safe, as the channel is.

    Attributes:
        channel: what the receivers of the pipeline receive from.
        copy: a broadcast that drops the oldest, of the same arrays.
        failed: how many arrays were sent into the channel, and could not be sent into the copy.

    Example:
        >>> from arraybridge.recording import tee
        >>> with tee(broker.channel("frames")) as frames:
        ...     frames.send(np.zeros((4, 4)))
    """

    def __init__(self, channel: Channel, copy: Channel) -> None:
        self.channel: Final = channel
        self.copy: Final = copy
        self.failed = 0

    def send(self, array: Any, *, metadata: Any = None, timeout: float | None = None) -> None:
        """`Channel.send` into the channel, and then into the copy, which never waits for its receivers. An array is copied at
        most once for both. Failures of the copy alone are counted in `failed`.

        Raises:
            Errors of `Channel.send`, of the channel: then nothing was sent into the copy.

        Example:
            >>> frames.send(np.arange(3), metadata=b"left", timeout=10)
        """
        due = Due.after(timeout)
        message = self._placed(array, metadata)
        self.channel._send(message, due)
        try:
            self.copy._send(message, Due.after(0))
        except BrokerError:
            self.failed += 1

    def close(self) -> None:
        """Ends both streams in order. Idempotent.

        Example:
            >>> frames.close()
        """
        try:
            self.channel.close()
        finally:
            self.copy.close()

    def abandon(self) -> None:
        """Closes both and declares their streams incomplete.

        Example:
            >>> frames.abandon()
        """
        try:
            self.channel.abandon()
        finally:
            self.copy.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        (self.close if raised is None else self.abandon)()

    def _placed(self, array: Any, metadata: Any) -> Message:
        """The array as a share of its own, which both channels then forward: a sender may not send one placement twice."""
        checked = encoded(metadata)
        broker = self.channel._broker
        share = broker.put(array, lifetime=_LIFETIME_S)
        info, views = broker._acquired(share, False)
        share.withdraw()  # the views keep the bytes
        return Message([source_of_share(view) for view in views], info.structure, checked)


def tee(channel: Channel, name: str | None = None) -> Tee:
    """A sender that sends each array into `channel`, and also into a broadcast for recorders and viewers.

    Args:
        channel: an end of the pipeline's channel, of any mode, from `Broker.channel`.
        name: of the broadcast; None: that of the channel, with ".tee".

    Raises:
        InvalidRequest: there is a channel of this name of another mode. BrokerUnavailable.

    Example:
        >>> from arraybridge.recording import Recorder, tee
        >>> with tee(broker.channel("frames")) as frames:
        ...     recorder = Recorder("run.mcap", ["frames.tee"], broker=broker)
        ...     frames.send(np.zeros((4, 4)))
        >>> recorder.wait(timeout=10)
        True
    """
    copy = channel._broker.channel(name or f"{channel.name}.tee", mode="broadcast", on_slow="drop_oldest")
    return Tee(channel.open("sender"), copy.open("sender"))


autograph.mark_module(__name__)
