# SPDX-License-Identifier: Apache-2.0
"""Clients of this machine with a broker of aarch64: what lies in shared memory has the same layout on both."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import emulated
import pytest

PRODUCER = """
import sys, numpy
from arraybridge import Broker
broker = Broker(sys.argv[1], timeout_s=300)
frame = numpy.arange(1_000_000, dtype="float32").reshape(1000, 1000)
broker.put(frame, "frame")
for row in range(60):
    broker.put(frame[row], f"row-{row}", wait=False)
with broker.channel("stream", capacity=8) as stream:
    print("put", flush=True)
    for number in range(200):
        stream.send(numpy.full((64, 64), number, dtype="float32"))
"""
CONSUMER = """
import sys, numpy
from arraybridge import Broker
broker = Broker(sys.argv[1], timeout_s=300)
frame = numpy.arange(1_000_000, dtype="float32").reshape(1000, 1000)
for _ in range(40):  # the first by a call, the others from the catalogue
    array = broker.get("frame", "numpy")
    assert numpy.array_equal(array, frame) and not array.flags.writeable
for row in range(60):
    assert numpy.array_equal(broker.get(f"row-{row}", "numpy", wait=300), frame[row])
numbers = [set(array.ravel().tolist()) for array in broker.channel("stream").receiver("numpy")]
assert numbers == [{float(number)} for number in range(200)], numbers[:3]
print("got all")
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ab-arm-") as folder:  # short, because a socket's path has at most 107 bytes
        yield Path(folder)


@pytest.mark.parametrize("page", emulated.PAGES)
def test_arrays_go_through_a_broker_of_the_other_machine(directory: Path, page: int) -> None:
    if why := emulated.missing("daemon/arraybridged"):
        pytest.skip(why)
    with emulated.daemon(directory, page):
        words = [sys.executable, "-c", PRODUCER, str(directory)]
        producer = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        try:
            assert producer.stdout is not None and producer.stdout.readline() == "put\n"
            words = [sys.executable, "-c", CONSUMER, str(directory)]
            consumer = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            assert consumer.returncode == 0 and consumer.stdout == "got all\n", consumer.stdout + consumer.stderr
            assert producer.wait() == 0
        finally:
            producer.kill()
            producer.communicate()
