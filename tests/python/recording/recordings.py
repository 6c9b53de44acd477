# SPDX-License-Identifier: Apache-2.0
"""What the tests of recordings share: senders, receivers, and files that are read with mcap's own reader."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import environment

import arraybridge
from arraybridge import Broker, Channel

mcap_reader = pytest.importorskip("mcap.reader", reason="mcap is not installed")
stream_reader = pytest.importorskip("mcap.stream_reader", reason="mcap is not installed")

PATIENCE_S = 300.0


def sender(broker: Broker, name: str, **terms: Any) -> Channel:
    """A sender that no receiver delays. A recorder misses nothing of the first 64 messages, however slow the machine is."""
    return broker.channel(name, mode="broadcast", on_slow="drop_oldest", **({"capacity": 64} | terms)).open("sender")


def eventually(what: str, true: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < limit, f"it did not happen: {what}"
        time.sleep(0.01)


class Taken(threading.Thread):
    """Receives in a thread of its own until the stream ends: `Received`s, and the error that ended it, if any."""

    def __init__(self, broker: Broker, name: str, framework: str = "numpy", **terms: Any) -> None:
        super().__init__(daemon=True)
        self.received: list[arraybridge.Received] = []
        self.error: Exception | None = None
        self._channel, self._framework = broker.channel(name, **terms).open("receiver"), framework
        self.start()

    def run(self) -> None:
        try:
            for each in self._channel.receiver(self._framework, info=True, timeout=PATIENCE_S):
                self.received.append(each)
        except Exception as error:
            self.error = error
        self._channel.close()

    def all(self) -> list[arraybridge.Received]:
        self.join(PATIENCE_S)
        assert not self.is_alive() and self.error is None, self.error
        return self.received


def command(*words: str, address: str, namespace: str) -> subprocess.Popen[str]:
    """`python -m arraybridge` with these words, at this broker."""
    where = ["--address", address, "--namespace", namespace]
    return subprocess.Popen(
        [sys.executable, "-m", "arraybridge", words[0], *where, *words[1:]],
        env=environment(), cwd=tempfile.gettempdir(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@contextmanager
def recording_process(*words: str, address: str, namespace: str) -> Iterator[subprocess.Popen[str]]:
    """A recorder in a process of its own, which has opened its channels."""
    process = command("record", "--nice=0", *words, address=address, namespace=namespace)
    try:
        assert process.stderr is not None and process.stdout is not None
        first = process.stderr.readline()
        assert first.startswith("recording "), first + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def records_of(path: Path) -> tuple[list[Any], bool]:
    """The records that mcap's own reader finds, with their checksums, and whether the file has its end."""
    found = []
    with open(path, "rb") as file:
        try:
            for record in stream_reader.StreamReader(file, validate_crcs=True).records:
                found.append(record)
        except Exception as error:  # it ends within a record, or after one
            assert type(error).__name__ in ("EndOfFile", "error", "CRCValidationError", "RecordLengthLimitExceeded"), error
            return found, False
    return found, True


def messages_of(path: Path, topic: str) -> list[Any]:
    """The messages of a topic in a complete file."""
    with open(path, "rb") as file:
        return [message for _, _, message in mcap_reader.make_reader(file, validate_crcs=True).iter_messages(topic)]


def events_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(message.data) for message in messages_of(path, "/arraybridge/events")]


def arrays_of(message: Any) -> dict[str, Any]:
    """The arrays of a message, as the package safetensors reads them."""
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    return dict(numpy.load(bytes(message.data)))


def file_size(path: Path) -> int:
    return os.stat(path).st_size if path.exists() else 0
