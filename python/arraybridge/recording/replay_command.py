# SPDX-License-Identifier: Apache-2.0
"""Sends what was recorded into channels again, at the same times or faster, with the same ends of streams.

FILE: of `record`. Receivers take the messages as arrays of any framework. The file is not trusted: a malformed one is refused.
"""

from __future__ import annotations

import argparse
import json
import sys

from arraybridge.broker import Broker
from arraybridge.errors import printable
from arraybridge.recording.replaying import replay

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a recording")
    parser.add_argument("channels", nargs="*", metavar="CHANNEL", help="only these, by their recorded names; default: all")
    parser.add_argument("--speed", type=_speed, default=1.0, help="2: twice as fast; inf: as fast as the receivers take it; default: 1")
    parser.add_argument(
        "--from", dest="begin", type=_seconds, default=0.0, metavar="TIME", help="since the first message: 10s, 500ms, 2min"
    )
    parser.add_argument("--to", dest="end", type=_seconds, metavar="TIME", help="since the first message; default: all")
    parser.add_argument("--rename", action="append", default=[], type=_renamed, metavar="OLD=NEW", help="of a channel; several times")
    parser.add_argument("--mode", choices=("queue", "broadcast", "latest"), default="queue", help="of the channels; default: queue")
    parser.add_argument("--wait", type=_seconds, metavar="TIME", help="for a receiver that is slow or absent; default: no limit")
    parser.add_argument("--address", help="directory of the broker's sockets; default: as Broker() finds it")
    parser.add_argument("-n", "--namespace", default="default", help="of the channels; default: default")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")


def run(wishes: argparse.Namespace) -> int:
    """Raises:
    BrokerError, OSError: as replay.
    """
    broker = Broker(wishes.address, namespace=wishes.namespace, start="never", client="replay")
    done = replay(
        wishes.file, wishes.channels or None, broker=broker, speed=wishes.speed, begin=wishes.begin, end=wishes.end,
        rename=dict(wishes.rename), mode=wishes.mode, timeout=wishes.wait,
    )  # fmt: skip
    if not done.whole and wishes.end is None:
        print("the file has no end: its recorder was killed, or the disk was full; sent up to the last whole chunk", file=sys.stderr)
    if wishes.output == "json":
        print(json.dumps({"messages": dict(done.messages), "whole": done.whole, "seconds": round(done.seconds, 3)}))
    else:
        for name, count in done.messages.items():
            print(f"{printable(name)}: {count} messages, {done.seconds:.1f} s")
    return 0


def _speed(text: str) -> float:
    found = float(text)
    if not found > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return found


def _seconds(text: str) -> float:
    """A time with a unit; a number alone is in seconds."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :] or "s"
    try:
        if unit not in _UNITS or float(number) < 0:
            raise ValueError
        return float(number) * _UNITS[unit]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a time such as 500ms, 10s or 2min, not {text!r}") from None


def _renamed(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError(f"must be OLD=NEW, not {text!r}")
    return old, new
