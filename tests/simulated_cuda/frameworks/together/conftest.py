# SPDX-License-Identifier: Apache-2.0
"""All packages whose arrays the simulated GPU has, in the same processes, with a broker between these."""

import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import HERE, Machine, Machines, started


@pytest.fixture(scope="session")
def variables(package: str, cupy_environment: dict[str, str]) -> dict[str, str]:
    """Environment variables of processes that import arraybridge, CuPy, and the modules of these folders."""
    return {"PYTHONPATH": os.pathsep.join([package, str(HERE), str(HERE.parent)])} | cupy_environment


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
