# SPDX-License-Identifier: Apache-2.0
"""A daemon and client programs on the simulated CUDA driver, for tests of GPU arrays without a GPU."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import ROOT, environment, stop_daemon

DRIVER = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build" / "dev")) / "tests/simulated_cuda/libsimulated_cuda.so"
HERE = Path(__file__).parent


@contextmanager
def daemon(gpus: int = 1, machine: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """A daemon's directory, and the environment of clients that see its GPUs. `machine`: more of its configuration."""
    if not DRIVER.exists():
        pytest.skip(f"{DRIVER.name} is not built")
    # In memory, where drivers of several processes look for each other's events.
    shared = tempfile.mkdtemp(prefix="simulated_cuda_", dir="/dev/shm")
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        library = Path(directory) / "lib"
        library.mkdir()
        (library / "libcuda.so.1").symlink_to(DRIVER)
        changed = environment(LD_LIBRARY_PATH=str(library), SIMULATED_CUDA=f"guest;dir={shared};devices={gpus}{machine}")
        changed.pop("CUDA_VISIBLE_DEVICES", None)
        ready, tell = os.pipe()
        address = str(Path(directory) / "d")
        started = subprocess.Popen(
            [os.environ["ARRAYBRIDGE_DAEMON"], "--directory", address, "--ready-fd", str(tell), "--log-level", "warn"],
            pass_fds=[tell], env=changed,
        )  # fmt: skip
        os.close(tell)
        with os.fdopen(ready, "rb") as pipe:
            assert pipe.readline() == b"ready\n", f"the daemon ended with status {started.wait()}"
        try:
            yield address, changed
        finally:
            assert stop_daemon(started) == 0
            shutil.rmtree(shared)


def run(program: str, env: dict[str, str], *arguments: str) -> str:
    """What a program, named by its path in this folder, printed once it has ended well."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(HERE / program), *arguments],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
