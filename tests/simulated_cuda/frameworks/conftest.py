# SPDX-License-Identifier: Apache-2.0
"""Runs programs that use real frameworks on the simulated CUDA driver: as libcuda.so.1, with a small libcudart before it.

Each program runs in its own process, because its preloaded libraries cannot be changed later.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cupy_runtime
import pytest
import runtime
from programs import DRIVER, HERE, ROOT, Program, one_gpu


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libcuda.so.1 and the runtime."""
    if not DRIVER.exists():
        pytest.skip(f"{DRIVER.name} is not built")
    folder = tmp_path_factory.mktemp("lib")
    (folder / "libcuda.so.1").symlink_to(DRIVER)
    includes = runtime.headers()
    if includes is None:
        pytest.skip("the CUDA runtime's headers are not installed")
    runtime.made(folder, includes)
    return folder


@pytest.fixture(scope="session")
def cupy_environment(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of a process that imports CuPy."""
    includes = runtime.headers()
    assert includes is not None
    # The compiled module stays beside the environment of these tests.
    folder = Path(sysconfig.get_paths()["data"]).parent / "cupy"
    folder.mkdir(exist_ok=True)
    return {
        "CUPY_RUNTIME_MODULE": str(cupy_runtime.made(folder, libraries / "libcudart.so.13", includes)),
        "CUPY_COMPILE_WITH_PTX": "1",
        "CUPY_ACCELERATORS": "",  # CUB's kernels are machine code
        "CUPY_CACHE_DIR": str(tmp_path_factory.mktemp("kernels")),
    }


@pytest.fixture(scope="session")
def package() -> Iterator[str]:
    """A folder from which arraybridge is imported: this tree's modules and the extension of its build."""
    built = [*DRIVER.parents[2].glob("python/_core*.so"), *map(Path, filter(None, [os.environ.get("ARRAYBRIDGE_CORE")]))]
    if not built or not (DRIVER.parents[2] / "daemon/arraybridged").exists():
        pytest.skip("the daemon or the extension is not built")
    with tempfile.TemporaryDirectory(prefix="ab-package-") as folder:
        inside = Path(folder) / "arraybridge"
        inside.mkdir()
        for each in [*(ROOT / "python" / "arraybridge").iterdir(), built[0]]:
            (inside / each.name).symlink_to(each)
        yield folder


@pytest.fixture
def environment(libraries: Path) -> Iterator[dict[str, str]]:
    """Environment variables of a process that sees one simulated GPU."""
    with one_gpu(libraries) as made:
        yield made


@pytest.fixture
def program(environment: dict[str, str]) -> Program:
    """Runs a file of this folder with arguments; returns the lines that it printed."""

    def run(name: str, *words: str, preload: bool = True) -> list[str]:
        chosen = environment if preload else {key: value for key, value in environment.items() if key != "LD_PRELOAD"}
        done = subprocess.run(
            [sys.executable, str(HERE / name), *words],
            env=chosen, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    return run
