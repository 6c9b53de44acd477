# SPDX-License-Identifier: Apache-2.0
"""Frameworks that need no libcudart, on the simulated driver."""

import pytest
from programs import Program


@pytest.mark.parametrize("name", ["copies", "export"])
def test_numba(program: Program, name: str) -> None:
    assert program("numba_program.py", name, preload=False)[-1] == "done"


def test_cuda_core(program: Program) -> None:
    assert program("cuda_core_program.py", preload=False) == ["done"]
