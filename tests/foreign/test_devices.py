"""Whose memory a daemon serves: what the configuration names, of what there is. On the simulated driver."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from foreign_client import BUILD, DAEMON, Daemon, Session, refused

DRIVER = str(BUILD / "tests/simulated_cuda/libsimulated_cuda.so")
FIRST, SECOND = (f"GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a0{n}" for n in range(2))
CPU, CUDA = 1, 2


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_CUDA", f"devices=2;dir={tmp_path};memory=67108864")


@pytest.fixture
def no_start(tmp_path: Path) -> Callable[..., str]:
    def why(*flags: str) -> str:
        command = [DAEMON, "--directory", tmp_path / "refused", "--log-format", "text", *flags]
        (tmp_path / "refused").mkdir(mode=0o700)
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
        assert done.returncode == 1
        return done.stderr

    return why


def served(session: Session) -> list[tuple[int, str]]:
    return [(device.device.type, device.device.uuid) for device in session.opened.server.devices]


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def loaded(daemon: Daemon) -> bool:
    return DRIVER in Path(f"/proc/{daemon.process.pid}/maps").read_text()


@pytest.mark.parametrize(
    ("flags", "devices"),
    [
        ([], [(CPU, ""), (CUDA, FIRST), (CUDA, SECOND)]),
        (["--backend", "cuda"], [(CPU, ""), (CUDA, FIRST), (CUDA, SECOND)]),
        (["--backend", "host"], [(CPU, "")]),
        (["--device", "host"], [(CPU, "")]),
        (["--device", f"cuda:{SECOND}", "--device", "host"], [(CPU, ""), (CUDA, SECOND)]),
        (["--device", "cuda:1"], [(CUDA, SECOND)]),
    ],
)
def test_what_is_named_is_served(
    start: Callable[..., Daemon], open_session: Callable[..., Session], flags: list[str], devices: list[Any]
) -> None:
    daemon = start("--cuda-driver", DRIVER, *flags)
    assert served(open_session(daemon)) == devices
    assert loaded(daemon) == any(kind == CUDA for kind, _ in devices)


def test_a_file_names_gpus_by_uuid(start: Callable[..., Daemon], open_session: Callable[..., Session], tmp_path: Path) -> None:
    named = write(tmp_path / "named.toml", f'memory.devices = ["cuda:{SECOND}"]\nmemory.cuda.driver = "{DRIVER}"\n')
    session = open_session(start("--config", named))
    assert served(session) == [(CUDA, SECOND)]
    with refused(grpc.StatusCode.INVALID_ARGUMENT, f"no device CPU; there are: {SECOND}"):
        session.call("Allocate", namespace="default", size=4096)
    numbered = write(tmp_path / "numbered.toml", 'memory.devices = ["cuda:1"]\n')
    done = subprocess.run([DAEMON, "--config", numbered, "--check-config"], capture_output=True, text=True)
    assert done.returncode == 2
    assert f"{numbered}:1:1: 'cuda:1' is another GPU in another process" in done.stderr


def test_a_device_that_is_not_there_is_named_beside_those_that_are(no_start: Callable[..., str]) -> None:
    missing = SECOND[:-1] + "7"
    said = no_start("--cuda-driver", DRIVER, "--device", f"cuda:{missing}")
    assert f"device cuda:{missing} is not there; there are: host, cuda:{FIRST} (cuda:0), cuda:{SECOND} (cuda:1)" in said


def test_without_a_driver_a_gpu_that_is_asked_for_stops_the_start(no_start: Callable[..., str]) -> None:
    said = no_start("--cuda-driver", "/nowhere/libcuda.so.1", "--backend", "cuda")
    assert "cannot start: memory.backend (--backend) is cuda, and no GPU: " in said


def test_a_named_gpu_without_a_driver_is_missing_with_the_reason(no_start: Callable[..., str]) -> None:
    said = no_start("--cuda-driver", "none", "--device", "cuda:0")
    assert "device cuda:0 is not there; there are: host; no GPU: the broker was told to use none" in said
