# SPDX-License-Identifier: Apache-2.0
"""Writes what goes through channels into a file of MCAP, until their streams have ended, or it is interrupted.

No sender waits for it: it runs with low priority, and counts what it was too slow for. CHANNEL: a broadcast that drops
the oldest, one of mode latest, or the tee of a queue. Needs the package mcap.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import sys
import time
from typing import NoReturn

from arraybridge.broker import Broker
from arraybridge.errors import printable
from arraybridge.recording.recorder import Recorder

_NICE = 10  # beside a process that is always busy, this one gets a tenth of a CPU
_BETWEEN_S = 1.0  # two updates of the line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("channels", nargs="+", metavar="CHANNEL", help="the name of a channel")
    parser.add_argument("-o", "--file", required=True, metavar="FILE", help="file to create")
    parser.add_argument("--replace", action="store_true", help="replace the file if it exists")
    parser.add_argument("--compression", choices=("none", "zstd"), default="none", help="default: none")
    parser.add_argument("--foxglove", action="store_true", help="also write images as Foxglove's RawImage, as topic CHANNEL/image")
    parser.add_argument("--follow", action="store_true", help="go on with later streams, until interrupted")
    parser.add_argument("--seconds", type=float, default=math.inf, help="record no longer than this")
    parser.add_argument(
        "--nice", type=int, choices=range(20), default=_NICE, metavar="N", help=f"lower priority: 0 to 19; default: {_NICE}"
    )
    parser.add_argument("--address", help="directory of the broker's sockets; default: as Broker() finds it")
    parser.add_argument("-n", "--namespace", default="default", help="of the channels; default: default")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")


def run(wishes: argparse.Namespace) -> int:
    """Raises:
    BrokerError, OSError: as Recorder.
    """
    for end in (signal.SIGINT, signal.SIGTERM):  # also in the background of a script, where SIGINT is ignored
        signal.signal(end, _interrupted)
    os.nice(wishes.nice)
    broker = Broker(wishes.address, namespace=wishes.namespace, start="never", client="record")
    recorder = Recorder(
        wishes.file, wishes.channels, broker=broker, compression=wishes.compression, foxglove=wishes.foxglove,
        follow=wishes.follow, replace=wishes.replace,
    )  # fmt: skip
    line = _Line(recorder)
    with recorder, contextlib.suppress(KeyboardInterrupt):
        line.note(f"recording {len(wishes.channels)} channels into {printable(wishes.file)}; Ctrl-C ends it\n")
        line.wait(wishes.seconds)
    counts = recorder.close()
    if wishes.output == "json":
        print(json.dumps({name: each._asdict() for name, each in counts.items()}))
    else:
        for name, each in counts.items():
            missed = f", {each.missed} missed" if each.missed else ""
            print(f"{printable(name)}: {each.messages} messages, {each.nbytes:,} bytes{missed}{'' if each.ended else ', not ended'}")
    return 0


class _Line:
    """A line on standard error: that the recording has begun, and on a terminal how far it is."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._shown = sys.stderr is not None and sys.stderr.isatty()

    def note(self, text: str) -> None:
        if sys.stderr is not None:
            os.write(sys.stderr.fileno(), text.encode())

    def wait(self, seconds: float) -> None:
        """Until the streams have ended, or so many seconds are over."""
        over = time.monotonic() + seconds
        while (left := over - time.monotonic()) > 0 and not self._recorder.wait(min(_BETWEEN_S, left)):
            if self._shown:
                self.draw()
        if self._shown:
            self.note("\r\x1b[K")

    def draw(self) -> None:
        counts = self._recorder.stats().values()
        messages, nbytes, missed = (sum(each[place] for each in counts) for place in (0, 2, 1))
        self.note(f"\r{messages} messages, {nbytes / (1 << 20):.0f} MiB, {missed} missed\x1b[K")


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt
