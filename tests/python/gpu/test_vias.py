# SPDX-License-Identifier: Apache-2.0
"""Plan.via for JAX and TensorFlow against the simulated driver's own count of its calls."""

import simulated


def test_on_one_gpu() -> None:
    with simulated.daemon() as (address, environment):
        assert simulated.run("gpu/vias_program.py", environment, address) == "done\n"
