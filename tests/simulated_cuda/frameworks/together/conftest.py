# SPDX-License-Identifier: Apache-2.0
"""All packages whose arrays the simulated GPU has, in the same processes, with a broker between these."""

import contextlib
import functools
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import cupy_runtime
import pytest
import runtime
from machines import HERE, Machine, Machines, started


@pytest.fixture(scope="session")
def variables(libraries: Path, package: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of processes that import arraybridge, CuPy, and the modules of these folders."""
    includes = runtime.headers()
    assert includes is not None
    # The compiled module stays beside the environment of these tests.
    folder = Path(sysconfig.get_paths()["data"]).parent / "cupy"
    folder.mkdir(exist_ok=True)
    module = cupy_runtime.made(folder, libraries / "libcudart.so.13", includes)
    return {
        "PYTHONPATH": os.pathsep.join([package, str(HERE), str(HERE.parent)]),
        "CUPY_RUNTIME_MODULE": str(module),
        "CUPY_COMPILE_WITH_PTX": "1",
        "CUPY_ACCELERATORS": "",  # CUB's kernels are machine code
        "CUPY_CACHE_DIR": str(tmp_path_factory.mktemp("kernels")),
    }


@pytest.fixture(scope="session")
def machines(libraries: Path, variables: dict[str, str]) -> Iterator[Machines]:
    """A machine by kind of handle and settings of its driver. Tests share it, because its processes import every package
    first; so a name is one test's own.
    """
    with contextlib.ExitStack() as end:

        @functools.cache
        def machine(kind: str, settings: str = "") -> Machine:
            return end.enter_context(started(libraries, variables, kind, settings))

        yield machine
