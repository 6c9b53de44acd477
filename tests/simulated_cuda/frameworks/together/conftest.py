# SPDX-License-Identifier: Apache-2.0
"""All packages whose arrays the simulated GPU has, in the same processes, with a broker between these."""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import xla
from machines import COMMANDS, HERE, XLA_COMMANDS, Machine, Machines, started
from test_arraybridge import HELD


@pytest.fixture(scope="session")
def variables(package: str, cupy_environment: dict[str, str]) -> dict[str, str]:
    """Environment variables of processes that import arraybridge, CuPy, and the modules of these folders."""
    return {
        "PYTHONPATH": os.pathsep.join([package, str(HERE), str(HERE.parent), str(HERE / "one_memory"), str(HERE / "follow")])
    } | cupy_environment


@pytest.fixture(scope="session")
def machines(libraries: Path, variables: dict[str, str]) -> Iterator[Machines]:
    """A machine by kind of handle and settings of its driver, which writes bytes only if a process waits for them. Tests
    share it, because its processes import every package first; so a name is one test's own.
    """
    with contextlib.ExitStack() as end:

        @functools.cache
        def machine(kind: str, settings: str = "") -> Machine:
            return end.enter_context(started(libraries, variables, COMMANDS, kind, HELD + settings))

        yield machine


@pytest.fixture(scope="session")
def xla_machines(libraries: Path, variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A machine with two GPUs by kind of handle, whose processes have JAX and TensorFlow, too. TensorFlow polls events until
    its work is done, so work runs while it polls, and not while a test pauses the driver.
    """
    changed = variables | xla.with_tensorflow(tmp_path_factory.mktemp("xla"), libraries)
    with contextlib.ExitStack() as end:

        @functools.cache
        def machine(kind: str, settings: str = "") -> Machine:
            return end.enter_context(started(libraries, changed, XLA_COMMANDS, kind, ";devices=2" + settings))

        yield machine
