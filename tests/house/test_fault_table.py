# SPDX-License-Identifier: Apache-2.0
"""docs/explanation/reliability.md lists every fault with its tests, and these exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/explanation/reliability.md"
FAULTS = 40
# Rows without a test of their own refer to a part of the work that brings it.
REFERENCES = {"none yet"}
NAMED = re.compile(r"`(tests/[\w/]+\.(?:py|cc))(?:::(\w+))?`")


def rows(text: str) -> dict[int, str]:
    """The cell with the tests of each fault."""
    return {int(number): tests for number, tests in re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE)}


def exists(path: str, test: str) -> bool:
    """Without a test: the whole file is meant."""
    file = ROOT / path
    if not file.exists() or not test:
        return file.exists()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == test for node in tree.body)


def missing(cell: str) -> list[str]:
    return [f"{path}::{test}" for path, test in NAMED.findall(cell) if not exists(path, test)]


def test_every_fault_has_its_row() -> None:
    assert list(rows(PAGE.read_text(encoding="utf-8"))) == list(range(1, FAULTS + 1))


def test_every_row_names_tests_that_exist() -> None:
    for number, cell in rows(PAGE.read_text(encoding="utf-8")).items():
        assert NAMED.search(cell) or cell in REFERENCES, f"fault {number} has no test: {cell}"
        assert missing(cell) == [], f"fault {number}"


@pytest.mark.parametrize(
    "named", ["`tests/faults/test_death.py::test_gone`", "`tests/faults/test_gone.py::test_a`", "`tests/unit/gone_test.cc`"]
)
def test_a_test_that_is_gone_is_found(named: str) -> None:
    assert len(missing(f"`tests/faults/test_death.py::test_a_zombie_holds_nothing`, {named}")) == 1


def test_every_file_of_fault_tests_is_in_the_table() -> None:
    """A new file belongs to a row."""
    named = {path for path, _ in NAMED.findall(PAGE.read_text(encoding="utf-8"))}
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/faults").glob("test_*.py")} <= named
