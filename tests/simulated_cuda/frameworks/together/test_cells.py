# SPDX-License-Identifier: Apache-2.0
"""An array of each real package is put in one process and got by each in another: the same memory, and the same values."""

import itertools

import pytest
from machines import Machines
from test_arraybridge import VIA, kind

__all__ = ["kind"]  # a fixture

PACKAGES = ["torch", "cupy", "numba", "cuda.core"]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(PACKAGES, PACKAGES)))
def test_put_by_one_and_got_by_another(machines: Machines, kind: str, source: str, target: str) -> None:
    machine = machines(kind)
    name = f"cell-{source}-{target}"
    assert machine.writer(f"cell_put {source} {name} 40") == f"(2, 0) {kind}"
    via = "view" if target == "cuda.core" else VIA[kind]
    assert machine.reader(f"cell_get {target} {name} 40") == f"cuda:0 shared {via} right"
    assert machine.writer(f"cell_get {target} {name} 40") == f"cuda:0 shared {via} right", "in the process that put it"


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(["torch", "cupy", "numba"], 2)))
def test_a_conversion_comes_after_queued_work(machines: Machines, source: str, target: str) -> None:
    """Numba has no current stream, so its conversion returns when the bytes are there."""
    seen = "waited" if target == "numba" else "pending"
    assert machines("cuda_vmm").writer(f"cell_convert {source} {target} 41") == f"{seen} right"
