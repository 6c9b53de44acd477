"""Without a card, all that tests/gpu/run does runs end to end on the simulated driver."""

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def test_everything_runs_on_the_simulated_driver() -> None:
    results = HERE / "results"
    before = sorted(results.iterdir()) if results.exists() else []
    command = [str(HERE / "run"), "--simulated", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "# SIMULATED: " in said
    for number in range(1, 27):
        assert f"- **E{number}** " in said, f"E{number} left no outcome"
    assert "timed out" not in said
    assert "rate of a put against the copy's" in said
    assert (sorted(results.iterdir()) if results.exists() else []) == before, "simulated results are not kept"


def test_a_machine_without_a_driver_is_told_so(tmp_path: Path) -> None:
    if any(Path(folder, "libcuda.so.1").exists() for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64", "/usr/lib64")):
        return  # this one has a card
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    python = HERE.parents[1] / ".venv/bin/python"
    done = subprocess.run(
        [str(python), str(HERE / "run.py"), "--build", str(tmp_path)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 69
    assert "no card can be used here: libcuda.so.1" in done.stderr
