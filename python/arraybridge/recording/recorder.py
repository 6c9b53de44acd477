# SPDX-License-Identifier: Apache-2.0
"""A Recorder writes what goes through channels into a file: a receiver of each, in a thread of its own.

A thread holds one message at a time; what it is too slow for waits in the broker, which drops the oldest. So a recorder that
stands still delays no sender, and the sequences show what it has missed.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self, TypedDict, Unpack

from arraybridge import _core, autograph
from arraybridge.arguments import check_word
from arraybridge.broker import Broker
from arraybridge.broker.channel import Channel
from arraybridge.errors import BrokerError, ChannelClosed, InvalidRequest, PeerGone
from arraybridge.recording import entry, images
from arraybridge.recording.container import Compression, Container, require_mcap

CHANNELS_MAX: Final = 1000  # of one file
_FLUSH_S: Final = 1.0  # a killed recorder loses what is younger
_TERMS: Final[tuple[dict[str, Any], ...]] = ({"mode": "broadcast", "on_slow": "drop_oldest"}, {"mode": "latest"})


class ChannelCounts(NamedTuple):
    """The counts of one channel of a Recorder.

    Attributes:
        messages: how many were written.
        missed: how many the broker dropped because the recorder was too slow, since the first one that it received.
        nbytes: the size of the messages, in bytes.
        ended: True if the stream has ended.

    Example:
        >>> recorder.stats()["frames"].missed
        0
    """

    messages: int = 0
    missed: int = 0
    nbytes: int = 0
    ended: bool = False


class RecordWishes(TypedDict, total=False):
    """Options of a Recorder."""

    compression: Compression
    foxglove: bool
    follow: bool
    replace: bool


class _Options(NamedTuple):
    """The same, complete."""

    compression: Compression = "none"
    foxglove: bool = False
    follow: bool = False
    replace: bool = False


class Recorder:
    """Records channels into an MCAP file, from its construction until their streams have ended, or `close`.

    A sender never waits for a recorder. A channel must be a broadcast that drops the oldest (mode="broadcast",
    on_slow="drop_oldest"), or of mode "latest"; of a queue, record a `tee`. Each message is a safetensors file of its arrays; the
    file also has ends of streams, lost senders, and messages that were missed. A recorder that is killed leaves a file that
    can be read up to its last second. Needs the package mcap: pip install 'mcap>=1.6'. Thread-safe.

    Args:
        path: the file to create.
        channels: names of channels, at most 1,000.
        broker: None: `Broker()`.
        compression: "none" or "zstd".
        foxglove: also writes each image as Foxglove's RawImage, under the topic NAME/image: arrays of shape (height, width) or
            (height, width, colours), uint8 with 1, 3 (RGB) or 4 (RGBA) colours, uint16 or float32 with 1.
        follow: True: goes on with later streams of the channels, until `close`.
        replace: replaces a file of this name.

    Raises:
        InvalidRequest: no names; or a channel is a queue, or lets senders wait. FileExistsError. OSError: the file cannot be
            created. FrameworkNotAvailable: mcap is not installed. BrokerUnavailable. OutOfMemory: too many ends of a channel.

    Example:
        >>> from arraybridge.recording import Recorder
        >>> with broker.channel("frames", mode="broadcast", on_slow="drop_oldest").open("sender") as frames:
        ...     recorder = Recorder("run.mcap", ["frames"], broker=broker)
        ...     frames.send(np.zeros((4, 4)))
        >>> recorder.wait(timeout=10), recorder.close()["frames"].messages
        (True, 1)
    """

    def __init__(
        self, path: str | os.PathLike[str], channels: Sequence[str], *, broker: Broker | None = None, **wishes: Unpack[RecordWishes]
    ) -> None:
        names, options = _checked_names(channels), _Options(**wishes)
        check_word(options.compression, "compression", ["none", "zstd"])
        require_mcap()
        self._broker: Final = broker or Broker()
        self._options: Final = options
        self._channels: Final[dict[str, Channel]] = {}
        self._counts: Final = dict.fromkeys(names, ChannelCounts())
        self._latest: Final[dict[str, int]] = {}  # the sequence of the last message of each channel
        self._error: BaseException | None = None
        self._closed = False
        self._lock: Final = threading.Lock()  # of the file and the counts
        self._over: Final = threading.Event()  # all streams have ended, or the recording has failed
        self._stopped: Final = threading.Event()
        self._epoch_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        with contextlib.ExitStack() as undo:
            for name in names:
                self._channels[name] = _opened(self._broker, name)
                undo.callback(self._channels[name].close)
            self._file = Container(os.fspath(path), options.compression, options.replace)
            facts = {"namespace": self._broker.namespace}
            self._numbers = {name: self._file.add_channel(name, facts) for name in names}
            undo.pop_all()
        self._threads = [threading.Thread(target=self._record, args=(name,), name="arraybridge-record", daemon=True) for name in names]
        self._threads.append(threading.Thread(target=self._flush, name="arraybridge-flush", daemon=True))
        for thread in self._threads:
            thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the streams of all channels have ended; True: they have.

        Args:
            timeout: seconds; None: no limit.

        Raises:
            OSError: the file cannot be written, for example because the disk is full. BrokerUnavailable: the broker has ended.
            Both close the recording; what was written before can be read.

        Example:
            >>> recorder.wait(timeout=0)
            False
        """
        ended = self._over.wait(timeout)
        self._raise()
        return ended

    def stats(self) -> Mapping[str, ChannelCounts]:
        """The counts of each channel until now.

        Example:
            >>> sum(counts.messages for counts in recorder.stats().values())
            0
        """
        with self._lock:
            return dict(self._counts)

    def close(self) -> Mapping[str, ChannelCounts]:
        """Ends the recording, completes the file, and returns `stats`. Idempotent.

        Raises:
            OSError, BrokerUnavailable: as `wait`.

        Example:
            >>> recorder.close()["frames"].ended
            False
        """
        self._stopped.set()
        for channel in self._channels.values():
            with contextlib.suppress(BrokerError):
                channel.close()
        for thread in self._threads:
            thread.join()
        with self._lock:
            closed, self._closed = self._closed, True
        if not closed:
            self._complete()
        self._raise()
        return self.stats()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        if raised is None:
            self.close()
            return
        with contextlib.suppress(OSError, BrokerError):  # the first error counts
            self.close()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _now_ns(self) -> int:
        return self._epoch_ns + time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def _record(self, name: str) -> None:
        """Of a channel's thread."""
        try:
            while not self._stopped.is_set() and self._step(name):
                pass
        except BaseException as error:
            self._fail(error)
        with self._lock:
            if all(counts.ended for counts in self._counts.values()):
                self._over.set()

    def _step(self, name: str) -> bool:
        """Records the next message, or notice, of a channel. False: its stream has ended, or the recording."""
        try:
            info, views = self._channels[name]._on("receiver", lambda end: end.receive(False, None, False))
        except PeerGone as lost:
            self._event(name, "lost", text=lost.reason)
            return True
        except ChannelClosed as ended:
            if self._stopped.is_set() or ended.earlier:
                return not self._stopped.is_set()
            self._event(name, "ended")
            return self._options.follow
        received_ns = self._now_ns()
        sequence, sent_ns = (info.sent or (0, 0, 0))[0], self._epoch_ns + (info.sent[2] if info.sent else 0)
        data = self._encoded(name, info, views)
        if data is None:
            return True
        image = self._image_of(name, info, views, sent_ns)
        del info, views  # the memory is the broker's again
        self._write(name, data, image, (sequence, received_ns, sent_ns))
        return True

    def _encoded(self, name: str, info: _core.ShareInfo, views: Sequence[_core.View]) -> bytes | None:
        """None: it is malformed; one sender ends no recording of the others."""
        try:
            return entry.encoded(info, views)
        except InvalidRequest as refused:
            self._event(name, "refused", text=refused.message, sequence=(info.sent or (0,))[0])
            return None

    def _image_of(self, name: str, info: _core.ShareInfo, views: Sequence[_core.View], sent_ns: int) -> bytes | None:
        alone = self._options.foxglove and not info.structure and len(views) == 1
        return images.image_of(views[0], name, sent_ns) if alone else None

    def _write(self, name: str, data: bytes, image: bytes | None, when: tuple[int, int, int]) -> None:
        with self._lock:
            if self._error is not None:
                return
            counts, before = self._counts[name], self._latest.get(name)
            sequence, received_ns, _ = when
            missed = 0 if before is None else max(0, sequence - before - 1)
            if before is not None and missed:
                self._file.add_event(received_ns, name, "missed", first=before + 1, count=missed)
            self._latest[name] = sequence
            self._file.add(self._numbers[name], data, *when)
            if image is not None:
                self._file.add_image(name, image, *when)
            self._counts[name] = ChannelCounts(counts.messages + 1, counts.missed + missed, counts.nbytes + len(data), False)

    def _event(self, name: str, event: str, **facts: str | int) -> None:
        with self._lock:
            if self._error is None:
                self._file.add_event(self._now_ns(), name, event, **facts)
                self._counts[name] = self._counts[name]._replace(ended=event == "ended" and not self._options.follow)

    def _flush(self) -> None:
        """Of a thread: what a killed recorder loses is bounded in time, too."""
        try:
            while not self._stopped.wait(_FLUSH_S):
                with self._lock:
                    if self._error is None:
                        self._file.flush()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._error is None:
                self._error = error.with_traceback(None)
        self._over.set()
        self._stopped.set()
        for channel in self._channels.values():
            with contextlib.suppress(BrokerError):
                channel.close()

    def _complete(self) -> None:
        facts: dict[str, str] = {}
        try:
            for name, counts in self._counts.items():
                if not counts.ended and not self._file.file.failed:
                    self._file.add_event(self._now_ns(), name, "stopped")
                facts |= {f"{name}: messages": str(counts.messages), f"{name}: missed": str(counts.missed)}
            self._file.close(facts)
        except OSError as error:
            self._error = self._error or error


def _checked_names(channels: Sequence[str]) -> list[str]:
    if isinstance(channels, str) or not channels or len(set(channels)) < len(channels) or len(channels) > CHANNELS_MAX:
        raise InvalidRequest(f"channels must be a list of 1 to {CHANNELS_MAX} different names, not {channels!r:.200}")
    return list(channels)


def _opened(broker: Broker, name: str) -> Channel:
    """A receiver of the channel for which no sender waits.

    Raises:
        InvalidRequest: it is a channel in which senders wait, or a receiver takes arrays from others.
    """
    refusals = []
    for terms in _TERMS:
        try:
            return broker.channel(name, **terms).open("receiver")
        except InvalidRequest as error:
            if error.reason != "CHANNEL_MODE":
                raise
            refusals.append(error.message.partition(";")[0])
    way = "send with mode='broadcast', on_slow='drop_oldest', or record a tee of a queue (arraybridge.recording.tee)"
    raise InvalidRequest(f"a recorder would take arrays from, or delay, the other ends: {refusals[0]}; {way}", reason="CHANNEL_MODE")


autograph.mark_module(__name__)
