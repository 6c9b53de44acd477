# SPDX-License-Identifier: Apache-2.0
"""The output of ls, show and the metrics for a share on a GPU whose bytes are still being written. On the simulated driver."""

from __future__ import annotations

import csv
import re
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from foreign_client import BUILD, CTL, Daemon, eventually

DRIVER = BUILD / "tests/simulated_cuda/libsimulated_cuda.so"
PROGRAM = BUILD / "tests/integration/cuda_client_program"


def metric(daemon: Daemon, name: str) -> float:
    port = re.search(r"http port (\d+)", daemon.log.read_text())
    assert port is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"arraybridge_{name} ")).split()[1])


def test_device_kind_and_fence_of_a_share(start: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No work runs there before a process waits for it.
    monkeypatch.setenv("SIMULATED_CUDA", f"held;dir={tmp_path}")
    daemon = start("--cuda-driver", str(DRIVER), "--http", "127.0.0.1:0")
    writer = subprocess.Popen([PROGRAM, daemon.directory, DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdin is not None
    assert writer.stdout is not None

    def do(command: str) -> str:
        assert writer.stdin is not None
        assert writer.stdout is not None
        print(command, file=writer.stdin, flush=True)
        return writer.stdout.readline().removesuffix("\n")

    def listed() -> tuple[str, str, str]:
        said = subprocess.run([CTL, "-H", daemon.directory, "-o", "csv", "ls"], capture_output=True, text=True, check=True)
        (row,) = csv.DictReader(said.stdout.splitlines())
        return row["DEVICE"], row["KIND"], row["FENCE"]

    assert do("put_later frame 60") == "later"
    device, kind, fence = listed()
    assert device.startswith("cuda:GPU-")
    assert (kind, fence) == ("cuda_vmm", "event")
    shown = subprocess.run([CTL, "-H", daemon.directory, "show", "frame"], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^fence\s+event$", shown, re.MULTILINE), shown
    assert (metric(daemon, "pending_fences"), metric(daemon, "lost_fences_total")) == (1, 0)
    assert do("get_in_order frame") == "60"
    eventually("the bytes are said to be there", lambda: listed() == (device, kind, "done"))
    assert (metric(daemon, "pending_fences"), metric(daemon, "lost_fences_total")) == (0, 0)
    assert do("put_later other 61") == "later"
    writer.kill()
    writer.wait()
    eventually("what never came is counted", lambda: metric(daemon, "lost_fences_total") == 1)
