# SPDX-License-Identifier: Apache-2.0
"""Two GPUs of the simulated driver, with fakes of the frameworks: which of them is meant, whose stream waits for whose.

With ARRAYBRIDGE_LONG the streams wait 1000 times.
"""

import subprocess
import sys
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
        "another_gpu_than_the_current",
        "from_gpu_to_gpu_to_numpy",
        "a_consumers_stream_waits_for_its_producers",
        "who_sees_some_gpus_numbers_them_as_cuda_does",
        "tensorflows_order_is_its_own",
        "a_capture_outlives_what_is_released_in_it",
    ],
)
def test_in_one_process(gpus: tuple[str, dict[str, str]], program: str) -> None:
    address, environment = gpus
    assert simulated.run("gpu/two_gpus_program.py", environment, address, program) == "done\n"


def test_processes_that_count_their_gpus_differently(gpus: tuple[str, dict[str, str]]) -> None:
    address, environment = gpus
    producer = subprocess.Popen(
        [sys.executable, simulated.HERE / "gpu/two_gpus_program.py", address, "put_on_the_second"],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert producer.stdout is not None
    uuid = producer.stdout.readline().strip()
    turned = {**environment, "SIMULATED_CUDA": environment["SIMULATED_CUDA"] + ";visible=1,0"}
    done = simulated.run("gpu/two_gpus_program.py", turned, address, "the_same_gpu_by_another_number", uuid)
    producer.communicate()
    assert (done, producer.returncode) == ("done\n", 0)
