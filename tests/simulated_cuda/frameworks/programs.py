"""The path of the simulated driver, and the environment that runs a program on it."""

import os
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DRIVER = (
    Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build" / "dev"))
    / "tests"
    / "simulated_cuda"
    / "libsimulated_cuda.so"
)

Program = Callable[..., list[str]]
