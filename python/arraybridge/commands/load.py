# SPDX-License-Identifier: Apache-2.0
"""Reads files of arrays into the broker, as a bundle that all processes use; does nothing if it is loaded already.

FILE: safetensors (also an index of shards, or a folder with one), .npz, or a checkpoint of torch. Prints one line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from arraybridge.broker import Broker
from arraybridge.errors import printable
from arraybridge.files.loading import load

_BETWEEN_S = 0.2  # two updates of the line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, several of one bundle, or a folder")
    parser.add_argument("--name", help="of the bundle; default: that of the first file, or of the folder, without its ending")
    parser.add_argument("--sha256", action="store_true", help="compare every byte, not size, time and header of the files")
    parser.add_argument("--replace", action="store_true", help="also if the bundle there is newer than these files")
    parser.add_argument("--device", help="where it is to lie: cpu, cuda, cuda:1, or a GPU's UUID; default: the host, or where it is loaded")
    parser.add_argument("--address", help="directory of the broker's sockets; default: as Broker() finds it")
    parser.add_argument("--namespace", default="default", help="owns the name and is charged; default: default")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="default: table")


def run(wishes: argparse.Namespace) -> int:
    """Raises:
    BrokerError, OSError: as arraybridge.load.
    """
    # A broker that this command started would end with the command, and the bundle with it.
    broker = Broker(wishes.address, namespace=wishes.namespace, start="never")
    meter = _Line()
    bundle = load(
        wishes.files, wishes.name, broker=broker, digest="sha256" if wishes.sha256 else "header",
        progress=meter if meter.shown else None, device=wishes.device, replace=wishes.replace,
    )  # fmt: skip
    seconds = meter.end()
    share = bundle.share
    facts: dict[str, Any] = {
        "name": share.name, "generation": share.generation, "arrays": len(bundle), "bytes": share.nbytes, "seconds": round(seconds, 3),
    }  # fmt: skip
    if wishes.output == "json":
        print(json.dumps(facts))
    else:
        print(f"{printable(share.name)}: generation {share.generation}, {len(bundle)} arrays, {_size(share.nbytes)}, {seconds:.1f} s")
    return 0


class _Line:
    """A line on a terminal that says how far it is."""

    def __init__(self) -> None:
        self.shown = sys.stderr is not None and sys.stderr.isatty()
        self._start = self._shown = time.monotonic()
        self._drawn = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._shown < _BETWEEN_S and done < total:
            return
        self._shown = now
        rate = done / max(now - self._start, 1e-9)
        share = 100 * done // total if total else 100
        print(f"\r{share:3d} %  {_size(done)} of {_size(total)}  {_size(rate)}/s\x1b[K", end="", file=sys.stderr, flush=True)
        self._drawn = True

    def end(self) -> float:
        """Clears the line; returns the seconds since the beginning."""
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        return time.monotonic() - self._start


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
