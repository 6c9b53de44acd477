# SPDX-License-Identifier: Apache-2.0
"""Bundles in memory of a GPU, on the simulated driver and with fakes of the frameworks."""

import subprocess
import sys

import pytest
import simulated


@pytest.mark.parametrize(
    "program",
    [
        "arrays_of_the_host_lie_on_the_gpu",
        "arrays_of_gpus_are_copied_where_the_bundle_lies",
        "it_is_written_in_place",
        "what_a_framework_has_queued_is_done_before_it_is_published",
        "many_small_arrays_need_few_waits",
        "files_are_loaded_onto_the_gpu",
        "a_module_on_a_gpu_is_published",
        "a_module_that_is_trained_is_refused",
    ],
)
def test_in_one_process(program: str) -> None:
    with simulated.daemon(gpus=2) as (address, environment):
        assert simulated.run("gpu/bundles_program.py", environment, address, program) == "done\n"


@pytest.mark.parametrize("machine", ["", ";off=103"], ids=["vmm", "ipc"])
def test_another_process_that_counts_its_gpus_differently(machine: str) -> None:
    with simulated.daemon(2, machine) as (address, environment):
        writer = subprocess.Popen(
            [sys.executable, simulated.HERE / "gpu/bundles_program.py", address, "another_process_writes"],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert writer.stdout is not None
        uuid = writer.stdout.readline().strip()
        turned = {**environment, "SIMULATED_CUDA": environment["SIMULATED_CUDA"] + ";visible=1,0"}
        done = simulated.run("gpu/bundles_program.py", turned, address, "another_process_reads", uuid)
        writer.communicate()
        assert (done, writer.returncode) == ("done\n", 0)


def test_a_driver_that_refuses() -> None:
    with simulated.daemon() as (address, environment):
        failing = {**environment, "SIMULATED_CUDA": environment["SIMULATED_CUDA"] + ";fail=cuMemcpyHtoDAsync:*:1"}
        assert simulated.run("gpu/bundles_program.py", failing, address, "a_driver_that_refuses_is_told") == "done\n"
