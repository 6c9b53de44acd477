# SPDX-License-Identifier: Apache-2.0
"""The wheel for aarch64, in Debian's Python of that machine with NumPy's wheel of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import emulated
import pytest

FOLDER = Path(os.environ.get("ARRAYBRIDGE_WHEELS", emulated.ROOT / "build" / "aarch64-wheel"))
PRODUCER = """
import numpy, sys
from arraybridge import Broker
broker = Broker(sys.argv[1], start="never", timeout_s=300)
broker.put(numpy.arange(1_000_000, dtype="float32").reshape(1000, 1000), "frame")
for number in range(60):
    broker.put(numpy.full(100, number), f"row-{number}", wait=False)
print("put", flush=True)
sys.stdin.read()
"""
CONSUMER = """
import numpy, platform, sys
import arraybridge
broker = arraybridge.Broker(sys.argv[1], start="never", timeout_s=300)
for _ in range(20):
    frame, plan = broker.get("frame", "numpy", explain=True)
    assert plan.zero_copy and not frame.flags.writeable
    assert numpy.array_equal(frame, numpy.arange(1_000_000, dtype="float32").reshape(1000, 1000))
for number in range(60):
    assert set(broker.get(f"row-{number}", "numpy", wait=300).tolist()) == {number}
with broker.born("numpy"):
    born = numpy.ones(100_000)
broker.put(born, "born")
assert not born.flags.writeable and broker.get("born", "numpy").sum() == 100_000  # it became the share
print(platform.machine(), arraybridge.__version__)
"""


@pytest.fixture(scope="module")
def wheel() -> Path:
    if why := emulated.missing():
        pytest.skip(why)
    found = sorted(FOLDER.glob("*_aarch64.whl"))
    if not found:
        pytest.skip(f"not built: a wheel in {FOLDER.name} (tests/run --only aarch64)")
    return found[-1]


def test_its_content_needs_and_names_are_those_of_a_wheel_for_an_index(wheel: Path) -> None:
    check = [sys.executable, emulated.ROOT / "tests/house/check_wheel.py", wheel]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "manylinux_2_34_aarch64" in done.stdout


@pytest.mark.parametrize("page", emulated.PAGES)
def test_two_processes_share_arrays_by_its_daemon(wheel: Path, page: int, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    daemon = tmp_path / "arraybridge/bin/arraybridged"
    daemon.chmod(0o755)
    with tempfile.TemporaryDirectory(prefix="ab-arm-") as directory, emulated.daemon(Path(directory), page, daemon):
        words = emulated.python(tmp_path, page, "-c", PRODUCER, directory)
        producer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert producer.stdout is not None and producer.stdout.readline() == "put\n"
            words = emulated.python(tmp_path, page, "-c", CONSUMER, directory)
            consumer = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
            assert consumer.returncode == 0, consumer.stdout + consumer.stderr
            assert consumer.stdout == f"aarch64 {wheel.name.split('-')[1]}\n"
        finally:
            producer.communicate()
        assert producer.returncode == 0
