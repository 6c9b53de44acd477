# SPDX-License-Identifier: Apache-2.0
"""Two GPUs of the simulated driver, with fakes of JAX and TensorFlow: which of them is meant."""

from collections.abc import Iterator

import pytest
import simulated


@pytest.fixture(scope="module")
def gpus() -> Iterator[tuple[str, dict[str, str]]]:
    with simulated.daemon(gpus=2) as started:
        yield started


@pytest.mark.parametrize(
    "program",
    [
        "from_gpu_to_gpu_to_numpy",
        "who_sees_some_gpus_numbers_them_as_cuda_does",
        "tensorflows_order_is_its_own",
    ],
)
def test_in_one_process(gpus: tuple[str, dict[str, str]], program: str) -> None:
    address, environment = gpus
    assert simulated.run("gpu/two_gpus_program.py", environment, address, program) == "done\n"
