# SPDX-License-Identifier: Apache-2.0
"""The documents say what has been shown on a card as the results have it."""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import benches
import experiments
import plan
import status
import suites

CARD = "NVIDIA H200, 2026-12-01"


def result(**found: Any) -> dict[str, Any]:
    """Of a run on a card."""
    machine = {"GPU": "NVIDIA H200, 139.8 GiB, 1 of them", "date": "2026-12-01 10:00 UTC", "CUDA of the driver": "13.0"}
    return {"machine": machine, "simulated": False, "experiments": [], "steps": [], "bench": []} | found


def experiment(name: str, outcome: str) -> dict[str, str]:
    return {"experiment": name, "outcome": outcome}


def shown_on(found: list[dict[str, Any]]) -> dict[str, str]:
    """The last column of the page, by the steps of the row."""
    page = status.filled(status.PAGE.read_text(), status.outcomes(status.of_cards(found)))
    return {cells[-2]: cells[-1] for cells in status.rows(page)}


def test_every_step_is_in_the_list_and_every_row_names_steps() -> None:
    listed = {name for cells in status.rows(status.PAGE.read_text()) for name in status.names(cells[-2])}
    known = {name for names in experiments.GROUPS.values() for name in names} | set(suites.TESTS) | {row[1] for row in plan.BENCHMARKS}
    # These need no card, or none can run them.
    assert known - listed == {"conformance, cudaIpcMemHandle", "integration, fences", "integration, host memory"}
    assert listed <= known


def test_the_documents_are_those_of_the_results() -> None:
    results = status.of_cards(json.loads(file.read_text()) for file in sorted((HERE / "results").glob("*.json")))
    page, readme = status.PAGE.read_text(), status.README.read_text()
    assert page == status.filled(page, status.outcomes(results)), "run tests/gpu/status.py"
    assert readme == status.with_times(readme, status.times(results)), "run tests/gpu/status.py"


def test_a_row_says_where_its_steps_ran_and_what_did_not_end_well() -> None:
    ran = [experiment("E3", "as expected"), experiment("E13", "differs"), experiment("E12", "recorded"), experiment("E11", "recorded")]
    column = shown_on([result(experiments=[*ran, experiment("E14", "not run: no time left for its 6 s")])])
    assert column["E12; E11"] == CARD
    assert column["E13"] == f"{CARD}: E13 differs"
    assert column["E3; E3b; E4; E5; E6"].startswith(f"{CARD}: E3b has not run; E4 has not run")
    assert column["E14"] == column["real frameworks"] == status.NOWHERE


def test_the_latest_run_of_a_step_counts() -> None:
    later = result(experiments=[experiment("E13", "as expected")])
    later["machine"] = later["machine"] | {"date": "2026-12-02 10:00 UTC"}
    assert shown_on([later, result(experiments=[experiment("E13", "differs")])])["E13"] == "NVIDIA H200, 2026-12-02"


def test_the_simulated_driver_shows_nothing() -> None:
    simulated = result(simulated=True, experiments=[experiment("E13", "as expected")], bench=[{"id": "put_d2d", "bytes": 4096, "us": 1.0}])
    assert set(shown_on([simulated]).values()) == {status.NOWHERE}
    assert status.times(status.of_cards([simulated])) == ""


def test_the_table_of_times_names_card_floor_and_ratio() -> None:
    figures = {("put_d2d", benches.GIB): 600.0, ("floor_d2d", benches.GIB): 500.0, ("get_warm", benches.MIB): 12.0}
    bench = [{"id": name, "bytes": size, "us": us} for (name, size), us in figures.items()]
    before = f"# x\n{status.BEGIN}\n{status.END}\n\n## Limits\n"
    table = status.times([result(bench=bench)])
    readme = status.with_times(before, table)
    assert f"On {CARD}, CUDA 13.0; medians of one run:" in readme
    assert f"| 1 GiB | 600.0 µs | 500.0 µs ({benches.WORK['floor_d2d']}) | 1.20 |" in readme
    assert "memory mapped before" not in readme, "its peer was not measured"
    assert readme.endswith(f"\n{status.END}\n\n## Limits\n")
    assert status.with_times(readme, "") == before
