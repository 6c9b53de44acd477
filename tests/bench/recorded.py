# SPDX-License-Identifier: Apache-2.0
"""The rows of a pipeline that is recorded: how long a frame takes its sender, beside the same pipeline without a recorder.

record: frames of 256 KiB with some milliseconds of work each, which a disk takes; record_too_much: frames of 6 MiB as fast as
they can be sent, which none does. A sender fills frames in broker memory, and a receiver in another process reads them; the
recorder is `python -m arraybridge record`. Turns with and without it alternate; value and floor are medians. `missed` is the
share of the frames that the recorder has not written.

    tests/bench/recorded.py [full]      prints the rows as JSON
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Work(NamedTuple):
    """A pipeline: what a frame is, and how much is done for it."""

    text: str
    reach: str
    nbytes: int
    passes: int  # over the frame, in its sender
    frames: int


WORK = {
    "record": Work("a frame of 256 KiB, 4 ms of work, while it is recorded; floor: without", "<= 1.03 x", 1 << 18, 60, 500),
    "record_too_much": Work("a frame of 6 MiB as fast as it goes, beside a recorder that misses most", "<= 1.11 x", 6 << 20, 0, 500),
}
RECEIVE = """
import sys, arraybridge
with arraybridge.Broker(sys.argv[1]) as broker:
    frames = broker.channel(sys.argv[2]).open("receiver")
    print("ready", flush=True)
    assert all(frame[-1] == frame[0] for frame in frames.receiver())
"""


def rows(build: Path, full: bool) -> list[dict[str, Any]]:
    if importlib.util.find_spec("mcap") is None:
        print("left out: recorded: mcap is not installed", file=sys.stderr)
        return []
    environment = {**os.environ, "ARRAYBRIDGE_DAEMON": str(build / "daemon/arraybridged")}
    done = subprocess.run([sys.executable, __file__, *(["full"] if full else [])], env=environment, stdout=subprocess.PIPE, check=True)
    made: list[dict[str, Any]] = json.loads(done.stdout)
    return made


@contextmanager
def receiver(broker: Any, name: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", RECEIVE, broker.address, name], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
        assert process.wait() == 0


def recorder(broker: Any, name: str, file: Path) -> subprocess.Popen[str]:
    """A recorder that has opened the channel."""
    words = [sys.executable, "-m", "arraybridge", "record", "--address", broker.address, "--output=json", "-o", str(file), name]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None and process.stderr.readline().startswith("recording ")
    return process


def sent_us(broker: Any, name: str, work: Work, frames: int) -> float:
    """Microseconds of the sender for a frame."""
    values = np.arange(work.nbytes // 4, dtype="f4")
    with broker.channel(name, 8, mode="broadcast", on_slow="drop_oldest").open("sender") as out:
        begun = time.perf_counter()
        for number in range(frames):
            frame = broker.empty(values.shape, "f4")
            for _ in range(work.passes):
                np.sqrt(values, out=frame)
            frame.fill(number)
            out.send(frame)
        return (time.perf_counter() - begun) / frames * 1e6


def turn(broker: Any, name: str, work: Work, frames: int, folder: Path | None) -> tuple[float, float]:
    """Microseconds for a frame, and the share of the frames that was missed: 0 without a recorder."""
    with receiver(broker, name):
        if folder is None:
            return sent_us(broker, name, work, frames), 0.0
        file = folder / f"{name}.mcap"
        recording = recorder(broker, name, file)
        took = sent_us(broker, name, work, frames)
        text, errors = recording.communicate()
        assert recording.returncode == 0, errors
        file.unlink()
        counts = json.loads(text)[name]
        return took, 1 - counts["messages"] / frames


def measure(full: bool) -> list[dict[str, Any]]:
    from arraybridge import Broker

    found = []
    for row, work in WORK.items():
        frames, with_it, without, missed = work.frames if full else work.frames // 5, list[float](), list[float](), list[float]()
        with Broker(start="private", timeout_s=60) as broker, tempfile.TemporaryDirectory() as folder:
            turn(broker, f"{row}-first", work, frames, None)  # memory is populated
            for number in range(7 if full else 3):
                without.append(turn(broker, f"{row}-{number}-alone", work, frames, None)[0])
                took, lost = turn(broker, f"{row}-{number}", work, frames, Path(folder))
                with_it.append(took)
                missed.append(lost)
        value, floor = statistics.median(with_it), statistics.median(without)
        found.append(
            {"id": row, "work": work.text, "value": round(value, 1), "unit": "us", "floor": round(floor, 1),
             "ratio": round(value / floor, 3), "reach": work.reach, "peer": None, "peer_value": None,
             "missed": round(statistics.median(missed), 3)}
        )  # fmt: skip
    return found


if __name__ == "__main__":
    print(json.dumps(measure("full" in sys.argv[1:]), indent=2))
