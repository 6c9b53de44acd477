"""Without a card, all that tests/gpu/run does runs end to end on the simulated driver."""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import benches

# What the simulated driver makes of the experiments; of all others "as expected".
OUTCOMES = dict.fromkeys([f"E{number}" for number in range(1, 27)], "as expected")
OUTCOMES |= dict.fromkeys(["E6", "E19", "E20", "E23", "E24", "E26"], "recorded")
OUTCOMES |= {
    "E14": "not run: the driver has no stream memory operations",
    "E22": "not run: one GPU",
    "E25": "not run: MPS and MIG are settings of the machine, which a test leaves alone",
}
# What needs more than the simulated driver, by the name of its step.
NOT_RUN = {"declarations against <cuda.h>": "not run: no toolkit is here"}


def test_everything_runs_on_the_simulated_driver(tmp_path: Path) -> None:
    results = HERE / "results"
    before = sorted(results.iterdir()) if results.exists() else []
    command = [str(HERE / "run"), "--simulated", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "# SIMULATED: " in said
    assert "timed out" not in said
    (written,) = tmp_path.glob("simulated-*.json")
    result = json.loads(written.read_text())
    assert {each["experiment"]: each["outcome"] for each in result["experiments"]} == OUTCOMES, said
    steps = {step["name"]: step for step in result["steps"]}
    left_out = {name: step["outcome"] for name, step in steps.items() if step["outcome"] != "passed"}
    assert left_out.items() <= NOT_RUN.items(), said
    assert all(step["passed"] for name, step in steps.items() if name not in left_out), said
    for name in ("conformance, cudaIpcMemHandle", "integration, fences", "real frameworks, SIMULATED"):
        assert steps[name]["outcome"] == "passed"
    assert steps["real frameworks, SIMULATED"]["passed"] >= 6, "PyTorch's and Numba's tests"
    assert result["bench_notes"] == []
    measured = {(row["id"], row["bytes"]) for row in result["bench"]}
    assert measured == {(name, size) for name in benches.WORK for size in benches.SMALL_SIZES}
    assert "rate of a put against the copy's" in said
    assert (sorted(results.iterdir()) if results.exists() else []) == before, "simulated results are not kept"


def test_torch_is_compared_with_the_broker_that_python_uses() -> None:
    rows = [{"id": name, "bytes": 4096, "us": us} for name, us in (("torch_resend", 60), ("torch_new", 90), ("broker_torch", 20), ("hand_off_sync", 5))]
    table = benches.table(rows)
    assert "| *torch, same tensor / Broker* | 3.00 |" in table
    assert "| *torch, new tensor / Broker* | 4.50 |" in table


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
