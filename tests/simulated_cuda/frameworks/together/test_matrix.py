# SPDX-License-Identifier: Apache-2.0
"""The documented conversion matrix of a GPU, cell by cell, with the real packages in one process."""

import functools
import json

import pytest
from machines import Machines
from programs import ROOT

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
def ways(xla_machines: Machines) -> Ways:
    answer = xla_machines("cuda_vmm").writer("matrix")
    assert answer.startswith("{"), answer
    return json.loads(answer)


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", FRAMEWORKS)
def test_on_one_gpu(ways: Ways, source: str, target: str) -> None:
    assert ways[source][target]["cuda"] == documented("On one GPU")[source][target]


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", FRAMEWORKS)
def test_a_copy_shares_nothing(ways: Ways, source: str, target: str) -> None:
    usual = documented("On one GPU")[source][target]
    assert ways[source][target]["copy"] == {"I": "P", "H": "P"}.get(usual, usual)


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", FRAMEWORKS)
def test_without_a_copy_it_is_shared_or_refused(ways: Ways, source: str, target: str) -> None:
    usual = documented("On one GPU")[source][target]
    assert ways[source][target]["shared"] == (usual if usual in "IH" else "–")


@pytest.mark.parametrize("target", FRAMEWORKS)
@pytest.mark.parametrize("source", FRAMEWORKS[1:])
def test_from_a_gpu_to_the_host(ways: Ways, source: str, target: str) -> None:
    assert ways[source][target]["cpu"] == documented("From a GPU to the host")[source][target]
