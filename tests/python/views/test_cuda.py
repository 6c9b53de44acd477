# SPDX-License-Identifier: Apache-2.0
"""Arrays on a GPU become Views and Views go to consumers, on the simulated driver and with arrays made by hand.

Real frameworks do the same in tests/simulated_cuda/frameworks.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from processes import environment
from simulated import DRIVER

PROGRAM = Path(__file__).with_name("cuda_view_program.py")


@pytest.mark.parametrize(
    "name",
    [
        "producers_are_told_the_legacy_stream",
        "managed_memory_shows_as_the_gpus",
        "an_interface_names_its_gpu_and_its_stream",
        "an_interface_that_cannot_be_is_refused",
        "a_consumers_stream_comes_after_the_producers",
        "another_threads_own_stream_is_waited_for",
        "a_host_copy_waits_for_its_producer",
        "a_copy_there_is_queued_on_the_consumers_stream",
        "what_is_copied_from_stays_until_it_was_read",
        "who_cannot_be_told_of_read_only_memory_gets_a_copy_there",
        "a_module_like_cupy_is_read_and_made",
        "gpus_are_listed_by_number",
    ],
)
def test_on_the_simulated_gpu(name: str, tmp_path: Path) -> None:
    if not DRIVER.exists():
        pytest.skip(f"{DRIVER.name} is not built")
    (tmp_path / "libcuda.so.1").symlink_to(DRIVER)
    changes = {"LD_LIBRARY_PATH": str(tmp_path), "SIMULATED_CUDA": "devices=2;visible=1,0"}
    changes["SIMULATED_CUDA"] += "" if name.startswith("gpus") else ";guest"
    done = subprocess.run([sys.executable, PROGRAM, name], env=environment(**changes), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stdout + done.stderr


def test_without_a_driver_there_is_no_gpu(tmp_path: Path) -> None:
    code = "from arraybridge import _core; assert _core.gpus() == []"
    (tmp_path / "libcuda.so.1").write_text("no library")
    done = subprocess.run([sys.executable, "-c", code], env=environment(LD_LIBRARY_PATH=str(tmp_path)), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
