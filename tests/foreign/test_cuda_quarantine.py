# SPDX-License-Identifier: Apache-2.0
"""A writer is killed with work queued on its stream: its bytes are not reused until its process, and with it its context,
has ended. Real processes on the simulated driver.

Between closing a killed process's sockets and ending the process, the kernel takes microseconds. The test extends this
time: the writer is the first process of a PID namespace, which does not end before all its other processes are reaped,
and the parent of one of these is stopped.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cuda_program import DRIVER, CudaProgram
from foreign_client import CTL, PATIENCE_S, Daemon, eventually

BLOCK = 2 << 20  # a GPU's smallest allocation


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def undying(pid: int) -> Iterator[None]:
    """REQUIRES: it is the first process of its PID namespace. When it is killed inside, it closes its files but does not end."""
    holder = subprocess.Popen(["nsenter", f"--target={pid}", "--pid", "--", "sleep", "infinity"])
    try:
        eventually("another process is in the namespace", lambda: bool(children(holder.pid)))
        holder.send_signal(signal.SIGSTOP)
        eventually("nobody reaps it", lambda: state(holder.pid) == "T")
        yield
    finally:
        holder.send_signal(signal.SIGCONT)
        holder.kill()
        holder.wait(PATIENCE_S)


@pytest.fixture
def daemon(start: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    if os.environ.get("ARRAYBRIDGE_CUDA_DRIVER"):
        pytest.skip("on a real card the test cannot delay work")
    apart = subprocess.run(["unshare", "--pid", "--fork", "nsenter", "--version"], capture_output=True)
    if apart.returncode != 0:
        pytest.skip("no PID namespace can be made here: " + apart.stderr.decode().strip())
    (tmp_path / "events").mkdir()
    monkeypatch.setenv("SIMULATED_CUDA", f"dir={tmp_path}/events;memory={4 * BLOCK}")  # the capacity is three blocks
    return start("--cuda-driver", str(DRIVER), "--arena-idle", "100ms", "--http", "127.0.0.1:0")


def metric(daemon: Daemon, start: str) -> float:
    (line,) = (line for line in daemon.page("/metrics").splitlines() if line.startswith(start))
    return float(line.rsplit(" ", 1)[1])


def shown(daemon: Daemon, *words: str) -> list[dict[str, str]]:
    command = [CTL, "-H", daemon.directory, "-o", "csv", *words]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return list(csv.DictReader(answer.splitlines()))


def quarantined(daemon: Daemon) -> tuple[float, str, str]:
    """The GPU's bytes in the metrics and in `ls devices`; arenas in `stats`."""
    (gpu,) = (row for row in shown(daemon, "ls", "devices") if "GPU-" in row["DEVICE"])
    (arenas,) = (row["VALUE"] for row in shown(daemon, "stats") if row["WHAT"] == "arenas in quarantine")
    return metric(daemon, 'arraybridge_memory_quarantined_bytes{device="cuda:0"'), gpu["QUARANTINED"], arenas


def test_a_killed_writers_memory_is_not_reused_before_its_process_ends(daemon: Daemon) -> None:
    writer = CudaProgram(daemon, "held", "unshare", "--pid", "--fork", "--kill-child", "--")
    other = CudaProgram(daemon)
    assert writer.do("put_later frame 91") == "later", "its stream has not run the work yet"
    assert writer.do("pending") == "1"
    assert quarantined(daemon) == (0, "0", "0")
    (pid,) = children(writer.process.pid)
    with undying(pid):
        os.kill(pid, signal.SIGKILL)
        eventually("the broker has heard of it", lambda: other.do("lost") == "1")
        assert metric(daemon, "arraybridge_lost_fences_total") == 1
        assert other.do("get frame").startswith("NOT_FOUND")
        # It is not handed out: arrays fill another block, and the one that would need this block times out.
        said = {name: other.do(f"put {name} 92") for name in "ab"}
        for last in "cdefgh":
            said[last] = other.do(f"put {last} 93")
            if said[last] != "ok":
                break
        assert "in use" in said[last], said
        assert quarantined(daemon) == (BLOCK, str(BLOCK), "1")
        assert Path(f"/proc/{pid}").exists()
    eventually("nothing of it is left", lambda: quarantined(daemon) == (0, "0", "0"))
    assert other.do(f"put {last} 94") == "ok", "there is room again"
    assert other.do(f"get {last}") == "94"
    other.end()
    writer.end()
