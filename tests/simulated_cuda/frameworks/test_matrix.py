# SPDX-License-Identifier: Apache-2.0
"""The documented conversion matrix of a GPU, cell by cell, with the real packages in one process."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import xla
from programs import HERE, ROOT, one_gpu
from test_arraybridge import served

PAGE = ROOT / "docs/reference/conversion-matrix.md"
FRAMEWORKS = ("numpy", "cupy", "torch", "tensorflow", "jax", "numba")
Ways = dict[str, dict[str, dict[str, str]]]


@functools.cache
def documented(heading: str) -> dict[str, dict[str, str]]:
    """The table below this heading: {source: {target: letter}}."""
    lines = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("|")]
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[2:]}


@pytest.fixture(scope="module")
def ways(libraries: Path, package: str, cupy_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Ways:
    with one_gpu(libraries) as machine, served(machine) as address:
        machine |= cupy_environment | xla.with_tensorflow(tmp_path_factory.mktemp("xla"), libraries) | {"PYTHONPATH": package}
        words = [sys.executable, HERE / "matrix_program.py", address]
        done = subprocess.run(words, env=machine, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", FRAMEWORKS)
def test_on_one_gpu(ways: Ways, source: str, target: str) -> None:
    assert ways[source][target]["cuda"] == documented("On one GPU")[source][target]


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", FRAMEWORKS[1:])
def test_from_a_gpu_to_the_host(ways: Ways, source: str, target: str) -> None:
    assert ways[source][target]["cpu"] == documented("From a GPU to the host")[source][target]
