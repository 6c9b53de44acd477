# SPDX-License-Identifier: Apache-2.0
"""Records the frames that detector.py reads, and lets it read them again from the file."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from arraybridge import Broker
from arraybridge.recording import Recorder, replay, tee

FRAMES = 30


def detector(broker, channel):
    """detector.py, at this channel."""
    program = Path(__file__).with_name("detector.py")
    return subprocess.Popen([sys.executable, program, broker.address, channel], stdout=subprocess.PIPE, text=True)


def frame(number):
    """A star that moves through noise."""
    image = np.random.default_rng(number).integers(0, 200, (480, 640), "uint8")
    image[7 * number, 20 * number] = 255
    return image


with Broker(start="private") as broker, tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "run.mcap"

    live = detector(broker, "frames")
    with Recorder(file, ["frames.tee"], broker=broker, foxglove=True) as recorder:
        with tee(broker.channel("frames")) as camera:
            for number in range(FRAMES):
                camera.send(frame(number), metadata=b"%d" % number)
        recorder.wait()
    seen, _ = live.communicate()
    counts = recorder.close()["frames.tee"]
    print(f"recorded {counts.messages} frames, {counts.nbytes:,} bytes, {counts.missed} missed")

    again = detector(broker, "test")
    replay(file, broker=broker, speed=float("inf"), rename={"frames.tee": "test"})
    found, _ = again.communicate()

known = set(seen.splitlines())
if counts.missed == 0 and found != seen or not known.issuperset(found.splitlines()):
    sys.exit("the detector found something else in the recording")
print(f"the detector found the same in {len(found.splitlines())} frames of the recording")
