# SPDX-License-Identifier: Apache-2.0
"""A real daemon in a temporary directory, and client processes that are exec'd, never forked from a threaded test."""

import concurrent.futures
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import arraybridge

ROOT = Path(__file__).resolve().parents[2]
PACKAGE_PARENT = str(Path(arraybridge.__file__).absolute().parents[1])
FRAMEWORKS = ("numpy", "torch", "tensorflow", "jax")

# Of this process, for the tests that import frameworks themselves, and of all clients.
os.environ.update(
    {
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "0",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
)
os.environ.setdefault("ARRAYBRIDGE_DAEMON", str(ROOT / "build/dev/daemon/arraybridged"))
os.environ.pop("ARRAYBRIDGE_ADDRESS", None)

Client = Callable[..., str]
Key = TypeVar("Key")


def environment(**changes: str) -> dict[str, str]:
    path = os.pathsep.join([PACKAGE_PARENT, str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    # Else a child that prints a line and waits keeps the line in its buffer.
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **changes}


def run_client(code: str, *arguments: str, **changes: str) -> str:
    """Runs Python code in a process of its own; its output, once it has ended well."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
        capture_output=True,
        text=True,
        env=environment(**changes),
        cwd=tempfile.gettempdir(),
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def children(*program: object) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a program, by default Python, with arguments, whose output the test reads; ends all of them."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: object) -> subprocess.Popen[str]:
        command = [*map(str, program or (sys.executable,)), *map(str, arguments)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def run_together(jobs: dict[Key, Callable[[], str]]) -> dict[Key, "concurrent.futures.Future[str]"]:
    """Runs jobs that wait for processes, as many at a time as there are CPUs. Each result is, or raises, its job's."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return {key: pool.submit(job) for key, job in jobs.items()}


def selected(request: pytest.FixtureRequest, test: str) -> list[dict[str, Any]]:
    """The parameters of the cases of this test that run in this session."""
    return [item.callspec.params for item in request.session.items if item.originalname == test]  # type: ignore[attr-defined]


def start_daemon(directory: str, *flags: str) -> subprocess.Popen[bytes]:
    """Ready when this returns."""
    ready, tell = os.pipe()
    daemon = subprocess.Popen(
        [os.environ["ARRAYBRIDGE_DAEMON"], "--directory", directory, "--ready-fd", str(tell), *flags],
        pass_fds=[tell],
    )
    os.close(tell)
    with os.fdopen(ready, "rb") as pipe:
        assert pipe.readline() == b"ready\n", f"the daemon ended with status {daemon.wait()}"
    return daemon


def stop_daemon(daemon: subprocess.Popen[bytes]) -> int:
    daemon.terminate()
    return daemon.wait()


def daemons_of(directory: str | Path) -> list[int]:
    """Process ids of the daemons that serve this directory; a keeper is none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"--directory" in words and str(directory).encode() in words and b"--keeper" not in words:
                found.append(int(entry.name))
    return found
