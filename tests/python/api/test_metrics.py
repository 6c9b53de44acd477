# SPDX-License-Identifier: Apache-2.0
"""arraybridge.metrics: what was converted, for whoever watches the process."""

import os
import shutil
import subprocess

import numpy as np
import pytest

import arraybridge
from arraybridge import counts
from arraybridge.conversion import shortcut

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture
def fresh(monkeypatch):
    """Nothing is counted yet; what the short way knows counts elsewhere."""
    mine = counts.Counts()
    os.register_at_fork(after_in_child=mine.after_fork)
    monkeypatch.setattr(counts, "of_process", mine)
    monkeypatch.setattr("arraybridge.conversion.memory.shortcuts", shortcut.Shortcuts())


def samples():
    return {
        each.name.removeprefix("arraybridge_client_"): {tuple(labels.values()): value for labels, value in each.samples}
        for each in arraybridge.metrics()
    }


def test_conversions_are_counted_with_their_bytes_and_reasons(fresh):
    for _ in range(3):
        arraybridge.convert_memory(np.ones(4, "f4"), "numpy", "torch", None)
    arraybridge.convert_memory(torch.ones(4), "torch", "numpy", None)
    arraybridge.convert_memory(np.ones(6, ">f4")[::-1], "numpy", "torch", None)
    found = samples()
    place = found["conversions_total"].pop(("numpy", "torch", "place"))
    assert place == 1
    assert found["conversions_total"] == {("numpy", "torch", "hand_over"): 3, ("torch", "numpy", "hand_over"): 1}
    assert found["copied_bytes_total"] == {("numpy", "torch"): 24, ("torch", "numpy"): 0}
    assert sum(found["copy_reasons_total"].values()) >= 1
    assert all(value == 1 for value in found["copy_reasons_total"].values())


def test_a_child_counts_for_itself(fresh):
    arraybridge.convert_memory(np.ones(4, "f4"), "numpy", "torch", None)
    arraybridge.convert_memory(np.ones(4, "f4"), "numpy", "torch", None, copy=True)
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            before = samples()
            arraybridge.convert_memory(np.ones(4, "f4"), "numpy", "torch", None)
            after = samples()
            none = not any(value for each in before.values() for value in each.values())
            os.write(write, b"good" if none and after["conversions_total"]["numpy", "torch", "hand_over"] == 1 else b"bad")
        finally:
            os._exit(0)
    os.wait()
    assert os.read(read, 9) == b"good"
    assert sum(samples()["conversions_total"].values()) == 2
    os.close(read)
    os.close(write)


def test_nothing_converted_is_nothing_told(fresh):
    assert samples() == {"conversions_total": {}, "copied_bytes_total": {}, "copy_reasons_total": {}}


def test_the_text_is_what_prometheus_reads(fresh):
    arraybridge.convert_memory(np.ones(4, "f4"), "numpy", "torch", None)
    text = "".join(map(str, arraybridge.metrics()))
    assert 'arraybridge_client_conversions_total{source="numpy",target="torch",route="hand_over"} 1\n' in text
    odd = arraybridge.Metric("arraybridge_client_odd_total", "Odd.", [({"reason": 'a "b"\\\n'}, 1)])
    assert str(odd).endswith('{reason="a \\"b\\"\\\\\\n"} 1\n')
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian's package prometheus) is not installed")
    answer = subprocess.run([promtool, "check", "metrics"], input=text + str(odd), capture_output=True, text=True)
    assert (answer.returncode, answer.stdout + answer.stderr) == (0, "")
