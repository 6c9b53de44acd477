# SPDX-License-Identifier: Apache-2.0
"""A client's report of its GPUs: all that it sees, as soon as its process uses CUDA, and not before. Real processes on the
simulated driver.
"""

from __future__ import annotations

import csv
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cuda_program import DRIVER, CudaProgram
from foreign_client import CTL, Daemon, eventually

UNSAID = "if it sees that GPU: it has not reported its GPUs"


@pytest.fixture
def daemon(start: Callable[..., Daemon], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    if os.environ.get("ARRAYBRIDGE_CUDA_DRIVER"):
        pytest.skip("the test simulates a machine with two GPUs")
    (tmp_path / "events").mkdir()
    monkeypatch.setenv("SIMULATED_CUDA", f"devices=2;dir={tmp_path}/events")
    return start("--cuda-driver", str(DRIVER))


@pytest.fixture
def maker(daemon: Daemon) -> CudaProgram:
    """The answer about the share "tensor", which is on the first GPU."""
    program = CudaProgram(daemon)
    assert program.do("put tensor 1") == "ok"
    return program


def offered(daemon: Daemon, client: CudaProgram) -> tuple[str, str]:
    """Whether the session would get the share, and the reason if not."""
    answer = subprocess.run([CTL, "-H", daemon.directory, "-o", "csv", "explain", "tensor"], capture_output=True, text=True, check=True)
    lines = answer.stdout.splitlines()
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("TO,")) :]
    (row,) = (row for row in csv.DictReader(table) if row["PID"] == str(client.process.pid))
    return row["OFFERED"], row["WHY"]


def test_a_client_that_uses_a_gpu_reports_its_gpus(daemon: Daemon, maker: CudaProgram) -> None:
    assert offered(daemon, maker) == ("yes", ""), "it has put an array on a GPU"
    reader, writer = CudaProgram(daemon), CudaProgram(daemon)
    for client, use in ((reader, "get tensor"), (writer, "put other 1")):
        assert client.do("leases").isdigit(), "it has a session"
        assert offered(daemon, client) == ("maybe", UNSAID), "its process has not used CUDA"
        assert client.do(use) in ("1", "ok")
        eventually("it has said it", lambda client=client: offered(daemon, client) == ("yes", ""))
        client.end()
    maker.end()


def test_initialised_gpus_are_reported_with_the_session(daemon: Daemon, maker: CudaProgram) -> None:
    client = CudaProgram(daemon)
    assert client.do("initialise") == "OK"
    assert client.do("leases").isdigit()
    assert offered(daemon, client) == ("yes", "")
    client.end()
    maker.end()


def test_the_broker_refuses_a_client_that_has_reported_another_gpu(daemon: Daemon, maker: CudaProgram) -> None:
    client = CudaProgram(daemon, "visible=1")
    assert client.do("leases").isdigit()
    assert client.do("put own 2") == "ok"
    eventually("it has said it", lambda: offered(daemon, client)[0] == "no")
    assert "which this session does not see; it sees GPU-" in offered(daemon, client)[1]
    assert client.do("get tensor").startswith("FAILED_PRECONDITION: share 'tensor' lies on GPU ")
    client.end()
    maker.end()
