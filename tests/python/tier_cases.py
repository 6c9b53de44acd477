# SPDX-License-Identifier: Apache-2.0
"""A broker with a directory for files, for the tests of tiers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from processes import start_daemon, stop_daemon

from arraybridge import Broker

MIB = 1 << 20


class Tier:
    """A daemon with a directory for files, and a Broker."""

    def __init__(self, folder: Path, flags: tuple[str, ...] = (), **settings: str) -> None:
        self.folder, self.files = folder, folder / "files"
        self.settings = {"directory": str(self.files), **settings}
        self.flags = ["--log-level", "warn", "--arena-idle", "100ms", "--cache", "0", *flags]
        self.start()

    def start(self) -> None:
        for key, value in self.settings.items():
            os.environ[f"ARRAYBRIDGED_TIERS__{key.upper()}"] = value
        try:
            self.daemon = start_daemon(str(self.folder / "broker"), *self.flags)
        finally:
            for key in self.settings:
                del os.environ[f"ARRAYBRIDGED_TIERS__{key.upper()}"]
        self.broker = Broker(self.folder / "broker", start="never")

    def stop(self) -> None:
        self.broker.close()
        assert stop_daemon(self.daemon) == 0

    def names(self) -> list[str]:
        """The files of shares."""
        return sorted(each.name for each in self.files.iterdir() if each.name != "lock")

    def file(self) -> Path:
        """The one file."""
        (name,) = self.names()
        return self.files / name


def pattern(seed: int, count: int = MIB) -> np.ndarray:
    """Of 4 bytes each."""
    return np.random.default_rng(seed).integers(0, 2**32, count, "uint32")


def eventually(test: Callable[[], object]) -> None:
    """Waits until it is true."""
    deadline = time.monotonic() + 60
    while not test():
        assert time.monotonic() < deadline
        time.sleep(0.01)
