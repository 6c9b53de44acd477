# SPDX-License-Identifier: Apache-2.0
"""The path of the simulated driver, and the environment that runs a program on it."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DRIVER = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build" / "dev")) / "tests" / "simulated_cuda" / "libsimulated_cuda.so"

Program = Callable[..., list[str]]


@contextlib.contextmanager
def one_gpu(libraries: Path) -> Iterator[dict[str, str]]:
    """The environment of processes of a machine of their own, which has one simulated GPU."""
    # In memory; the drivers of several processes look for each other's events here.
    shared = tempfile.mkdtemp(prefix="simulated_cuda_", dir="/dev/shm")
    yield os.environ | {
        "LD_LIBRARY_PATH": str(libraries),
        "LD_PRELOAD": str(libraries / "libcudart.so.13"),
        "SIMULATED_CUDA": f"guest;dir={shared}",
        "PYTHONWARNINGS": "ignore",
    }
    shutil.rmtree(shared)
