# SPDX-License-Identifier: Apache-2.0
"""Plan.via against the simulated driver's own count of its calls."""

import simulated


def test_between_gpus_that_reach_each_other_and_that_do_not() -> None:
    with simulated.daemon(gpus=2) as (address, environment):
        assert simulated.run("gpu/vias_program.py", environment, address, "between_gpus", "d2h+h2d") == "done\n"
        peers = {**environment, "SIMULATED_CUDA": environment["SIMULATED_CUDA"] + ";peers"}
        assert simulated.run("gpu/vias_program.py", peers, address, "between_gpus", "d2d-copy") == "done\n"


def test_on_one_gpu() -> None:
    with simulated.daemon() as (address, environment):
        assert simulated.run("gpu/vias_program.py", environment, address, "on_one_gpu") == "done\n"
