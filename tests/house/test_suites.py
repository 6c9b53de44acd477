"""`tests/run` chooses suites, and says how long they will take, as its help and the documents say."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLOW = ["long", "tsan", "asan", "tidy"]


def listed(*arguments: str, root: Path = ROOT) -> tuple[dict[str, str], str]:
    """The suites that would run, with their seconds; and the forecast."""
    done = subprocess.run([root / "tests/run", *arguments, "--list"], capture_output=True, text=True, check=True)
    *suites, forecast = done.stdout.splitlines()
    return {name: seconds for name, seconds, _ in map(str.split, suites)}, forecast


def test_continuous_integration_runs_all_but_the_slow_suites() -> None:
    assert '\nexec ./tests/run "$@"\n' in (ROOT / ".ci/run").read_text()
    usual, _ = listed()
    everything, _ = listed("--all")
    assert {"house", "unit", "python", "fuzz"} <= set(usual)
    assert list(everything) == [*usual, *SLOW]


@pytest.mark.parametrize(("pattern", "suites"), [("^asan$", ["asan"]), ("unit/broker_", ["unit"]), ("san$", ["tsan", "asan"])])
def test_a_pattern_chooses_among_all_suites(pattern: str, suites: list[str]) -> None:
    assert list(listed("--only", pattern)[0]) == suites


@pytest.mark.parametrize("arguments", [["--only", "nothing-of-this-name"], ["--slow"]])
def test_other_arguments_are_refused(arguments: list[str]) -> None:
    done = subprocess.run([ROOT / "tests/run", *arguments, "--list"], capture_output=True, text=True)
    assert done.returncode == 64 and done.stderr


def test_every_committed_time_is_that_of_a_suite() -> None:
    lines = [line.split() for line in (ROOT / "tests/suite_seconds").read_text().splitlines() if not line.startswith("#")]
    assert {name for name, _ in lines} <= set(listed("--all")[0])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The scripts alone, with times of their own."""
    for folder in ("tests", "deploy", "build"):
        (tmp_path / folder).mkdir()
    for script in ("tests/run", "deploy/lib.sh"):
        (tmp_path / script).write_bytes((ROOT / script).read_bytes())
    (tmp_path / "tests/run").chmod(0o755)
    (tmp_path / "tests/suite_seconds").write_text("# committed\nhouse 10\nunit 80\nasan 600\n")
    return tmp_path


def test_the_forecast_is_the_sum_of_the_last_times(copy: Path) -> None:
    assert "suites: 1; time: about 80 s," in listed("--only", "^unit$", root=copy)[1]
    assert "suites: 2; time: about 11 min," in listed("--only", "^(unit|asan)$", root=copy)[1]
    assert "about 10 s plus shell (not timed yet)," in listed("--only", "^(house|shell)$", root=copy)[1]
    (copy / "build/suite_seconds").write_text("unit 30\n")
    suites, forecast = listed("--only", "^(house|shell|unit)$", root=copy)
    assert suites == {"house": "10", "shell": "?", "unit": "30"} and "about 40 s plus shell" in forecast


def test_a_run_says_the_forecast_first_and_shows_progress(copy: Path) -> None:
    """Two suites of one command each; a setup that has nothing to do."""
    (copy / "deploy/setup").write_text("#!/bin/sh\n")
    (copy / "deploy/setup").chmod(0o755)
    script = (copy / "tests/run").read_text()
    script = re.sub(r"suite_house\(\) \{\n.*?\n\}\n", "suite_house() { one true; }\n", script, flags=re.DOTALL)
    script = re.sub(r"suite_unit\(\) \{\n.*?\n\}\n", "suite_unit() { one false; }\n", script, flags=re.DOTALL)
    (copy / "tests/run").write_text(script)
    done = subprocess.run([copy / "tests/run", "--only", "^(house|unit)$"], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert lines[0] == "suites: 2; time: about 90 s, on two cores, after the first build"
    assert "== house   (suite 1 of 2; passed: 0 s; left: about 90 s)" in lines
    assert "== unit   (suite 2 of 2; passed: 0 s; left: about 80 s)" in lines
    assert lines[-1] == "1 passed, 1 failed, 0 skipped"
    assert (copy / "build/suite_seconds").read_text() == "house 0\n", "a suite that failed is not timed"
