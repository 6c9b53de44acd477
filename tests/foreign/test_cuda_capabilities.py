"""What a client says of its GPUs: all that it sees, as soon as something in its process uses CUDA, and not before. Real
processes on the simulated driver.
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
        pytest.skip("a machine with two GPUs is simulated")
    (tmp_path / "events").mkdir()
    monkeypatch.setenv("SIMULATED_CUDA", f"devices=2;dir={tmp_path}/events")
    return start("--cuda-driver", str(DRIVER))


@pytest.fixture
def maker(daemon: Daemon) -> CudaProgram:
    """Of the share "tensor", on the first GPU."""
    program = CudaProgram(daemon)
    assert program.do("put tensor 1") == "ok"
    return program


def offered(daemon: Daemon, client: CudaProgram) -> tuple[str, str]:
    """Whether it would get the share, and why not."""
    answer = subprocess.run([CTL, "-H", daemon.directory, "-o", "csv", "explain", "tensor"], capture_output=True, text=True, check=True)
    lines = answer.stdout.splitlines()
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("TO,")) :]
    (row,) = (row for row in csv.DictReader(table) if row["PID"] == str(client.process.pid))
    return row["OFFERED"], row["WHY"]


def test_who_has_begun_to_use_a_gpu_says_which_it_sees(daemon: Daemon, maker: CudaProgram) -> None:
    assert offered(daemon, maker) == ("yes", ""), "it put on one"
    reader, writer = CudaProgram(daemon), CudaProgram(daemon)
    for client, use in ((reader, "get tensor"), (writer, "put other 1")):
        assert client.do("leases").isdigit(), "it has a session"
        assert offered(daemon, client) == ("maybe", UNSAID), "nothing in it needed CUDA"
        assert client.do(use) in ("1", "ok")
        eventually("it has said it", lambda client=client: offered(daemon, client) == ("yes", ""))
        client.end()
    maker.end()


def test_what_a_framework_has_initialised_is_said_with_the_session(daemon: Daemon, maker: CudaProgram) -> None:
    client = CudaProgram(daemon)
    assert client.do("initialise") == "OK"
    assert client.do("leases").isdigit()
    assert offered(daemon, client) == ("yes", "")
    client.end()
    maker.end()


def test_who_sees_another_gpu_is_told_by_the_broker_once_it_said_so(daemon: Daemon, maker: CudaProgram) -> None:
    client = CudaProgram(daemon, "visible=1")
    assert client.do("leases").isdigit()
    assert client.do("put own 2") == "ok"
    eventually("it has said it", lambda: offered(daemon, client)[0] == "no")
    assert "which this session does not see; it sees GPU-" in offered(daemon, client)[1]
    assert client.do("get tensor").startswith("FAILED_PRECONDITION: share 'tensor' lies on GPU ")
    client.end()
    maker.end()
