"""Without a GPU, tests/gpu/run runs end to end on the simulated driver."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import benches
from expected import check_simulated_run


@pytest.mark.skipif(
    shutil.which("bwrap") is not None and "ARRAYBRIDGE_LONG" not in os.environ, reason="test_bundle.py runs everything: ARRAYBRIDGE_LONG"
)
def test_everything_runs_on_the_simulated_driver(tmp_path: Path) -> None:
    results = HERE / "results"
    before = sorted(results.iterdir()) if results.exists() else []
    command = [str(HERE / "run"), "--simulated", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    check_simulated_run(tmp_path, said)
    assert (sorted(results.iterdir()) if results.exists() else []) == before, "simulated results are not kept"


def test_torch_is_compared_with_the_broker_that_python_uses() -> None:
    rows = [{"id": name, "bytes": 4096, "us": us} for name, us in (("torch_resend", 60), ("torch_new", 90), ("broker_torch", 20), ("hand_off_sync", 5))]
    table = benches.table(rows)
    assert "| *torch, same tensor / Broker* | 3.00 |" in table
    assert "| *torch, new tensor / Broker* | 4.50 |" in table


def test_a_machine_without_a_driver_is_told_so(tmp_path: Path) -> None:
    if any(Path(folder, "libcuda.so.1").exists() for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64", "/usr/lib64")):
        return  # this machine has a GPU
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    python = HERE.parents[1] / ".venv/bin/python"
    done = subprocess.run(
        [str(python), str(HERE / "run.py"), "--build", str(tmp_path)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 69
    assert "no card can be used here: libcuda.so.1" in done.stderr
