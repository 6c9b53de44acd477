# SPDX-License-Identifier: Apache-2.0
"""The expected result of a run on the simulated driver, on any machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import benches
import plan
from plan import Planned

# The outcomes of the experiments on the simulated driver; "as expected" for all others.
OUTCOMES = dict.fromkeys(["E3b", *(f"E{number}" for number in range(1, 31))], "as expected")
OUTCOMES |= dict.fromkeys(["E6", "E19", "E20", "E22", "E23", "E24", "E26", "E28", "E29"], "recorded")
OUTCOMES |= {
    "E14": "not run: the driver has no stream memory operations",
    "E25": "not run: MPS and MIG are settings of the machine, which a test leaves alone",
}
NOT_ASKED = [
    "- E14: the driver has no stream memory operations",
    "- E25: MPS and MIG are settings of the machine, which a test leaves alone",
    "- E8, second context: the driver has no cuCtxCreate_v2",
    "- E9, pool: the driver has no cuMemAllocAsync",
]
# What a process takes on a card until it has a context: by estimate, and at most, if no other keeps the GPU open.
STARTED_S = 1
START_S = 5
# Steps that need more than the simulated driver.
NOT_RUN = {"declarations against <cuda.h>": "not run: no toolkit is here"}


def check_limits(experiments: list[dict[str, Any]], planned: list[Planned]) -> None:
    """Each experiment's estimate holds the start of its processes, and its limit also what it waits for."""
    assert len(experiments) == len(OUTCOMES)
    estimates = {step.name: step.estimate_s for step in planned}
    for each in experiments:
        assert estimates[each["experiment"]] >= STARTED_S * each["drivers"], f"{each['experiment']} takes longer"
        assert each["limit_s"] >= each["waits_s"] + START_S * each["drivers"], f"{each['experiment']} cannot finish on a card"


def check_simulated_run(folder: Path, said: str, built: bool = False) -> None:
    """Checks the results in the folder, and the output of the run. `built`: it built the extension."""
    assert "# SIMULATED: " in said
    assert "timed out" not in said
    (written,) = folder.glob("simulated-*.json")
    page = written.with_suffix(".md").read_text()
    assert page in said
    assert "**All of them need a card:**" in page
    assert page.split("still open:\n\n")[1].split("\n\n")[0].splitlines() == NOT_ASKED
    result = json.loads(written.read_text())
    assert result["running"] == ""
    assert {each["experiment"]: each["outcome"] for each in result["experiments"]} == OUTCOMES, said
    steps = {step["name"]: step for step in result["steps"]}
    left_out = {name: step["outcome"] for name, step in steps.items() if step["outcome"] != "passed"}
    assert left_out.items() <= NOT_RUN.items(), said
    assert all(step["passed"] for name, step in steps.items() if name not in left_out), said
    for name in (
        plan.FIRST_HAND_OFF.name,
        "conformance, cudaIpcMemHandle",
        "integration, fences",
        "foreign client, cudaIpcMemHandle",
        "real frameworks",
    ):
        assert steps[name]["outcome"] == "passed"
    assert ("extension" in steps) == built
    assert not built or steps["extension"]["said"] == "", "it was built, and not a prebuilt one taken"
    assert steps["foreign client, cudaIpcMemHandle"]["passed"] >= 10
    assert steps["real frameworks"]["passed"] >= 6, "PyTorch's and Numba's tests"
    assert result["bench_notes"] == []
    measured = {(row["id"], row["bytes"]) for row in result["bench"]}
    assert measured == {(name, size) for name in benches.WORK for size in benches.SMALL_SIZES}
    assert "rate of a put against the copy's" in said
