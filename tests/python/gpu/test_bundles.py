# SPDX-License-Identifier: Apache-2.0
"""Bundles in memory of a GPU, of arrays in OpenCL memory."""

import simulated


def test_arrays_of_opencl() -> None:
    with simulated.daemon(gpus=2) as (address, environment):
        assert simulated.run("gpu/bundles_program.py", environment, address) == "done\n"
