# SPDX-License-Identifier: Apache-2.0
"""README.md of this folder says which test covers which case: all cases are there, and the tests exist."""

import re
from pathlib import Path

HERE = Path(__file__).parent
ROWS = re.findall(r"^\| (\d+) .*?\| (.*) \|$", (HERE / "README.md").read_text(), re.MULTILINE)
NAMED = re.compile(r"`(?:([\w/.]+\.py)::)?(test_\w+)(?:\[(\w+)\])?`")


def test_every_case_has_its_row():
    assert [int(number) for number, _ in ROWS[:60]] == list(range(1, 61))
    assert not [number for number, tests in ROWS if not NAMED.search(tests)]


def test_every_test_that_is_named_exists():
    for number, tests in ROWS:
        for file, test, program in NAMED.findall(tests):
            source = (HERE / (file or "convert/test_edge_cases.py")).read_text()
            assert f"def {test}(" in source, f"{number}: {test}"
            if test in ("test_in_one_process", "test_on_the_gpu", "test_on_the_simulated_gpu"):
                assert f'"{program}",' in source, f"{number}: {file} runs no {program or 'such test without a name'}"
