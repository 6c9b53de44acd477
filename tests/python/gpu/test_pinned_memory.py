# SPDX-License-Identifier: Apache-2.0
"""Host memory of the broker that is registered with the CUDA driver, which is the simulated one."""

from pathlib import Path

import pytest
import simulated


@pytest.mark.parametrize(
    "program",
    [
        "an_arena_is_registered_once",
        "what_gpus_still_copy_is_not_used_again",
        "it_ends_with_the_broker",
        "what_cannot_be_pinned_is_refused",
    ],
)
def test_on_the_simulated_gpu(program: str) -> None:
    with simulated.daemon() as (address, environment):
        assert simulated.run("gpu/pinned_program.py", environment, address, program) == "done\n"


def test_a_driver_that_refuses() -> None:
    with simulated.daemon() as (address, environment):
        failing = {**environment, "SIMULATED_CUDA": environment["SIMULATED_CUDA"] + ";fail=cuMemHostRegister:*:2"}
        assert simulated.run("gpu/pinned_program.py", failing, address, "a_driver_that_refuses_is_told") == "done\n"


def test_without_a_driver(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    with simulated.daemon() as (address, environment):
        without = {**environment, "LD_LIBRARY_PATH": str(tmp_path)}
        assert simulated.run("gpu/pinned_program.py", without, address, "without_a_gpu_it_is_refused") == "done\n"
