# SPDX-License-Identifier: Apache-2.0
"""`tests/run` chooses suites, and says how long they will take, as its help and the documents say."""

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLOW = ["long", "tsan", "asan", "fuzz", "tidy"]
LANES = 3 if int(subprocess.run(["nproc"], capture_output=True, check=True).stdout) > 1 else 1


def listed(*arguments: str, root: Path = ROOT) -> tuple[dict[str, str], str]:
    """The suites that would run, with their seconds; and the forecast."""
    done = subprocess.run([root / "tests/run", *arguments, "--list"], capture_output=True, text=True, check=True)
    *suites, forecast = done.stdout.splitlines()
    return {name: seconds for name, seconds, _ in map(str.split, suites)}, forecast


def test_continuous_integration_runs_all_but_the_slow_suites() -> None:
    assert '\nexec ./tests/run "$@"\n' in (ROOT / ".ci/run").read_text()
    usual, _ = listed()
    everything, _ = listed("--all")
    assert {"house", "unit", "python", "faults"} <= set(usual)
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


def test_the_forecast_is_the_sum_of_the_last_times_over_the_lanes(copy: Path) -> None:
    assert "suites: 1; time: about 80 s," in listed("--only", "^unit$", root=copy)[1]
    assert f"suites: 2; time: about {11 if LANES == 1 else 10} min," in listed("--only", "^(unit|asan)$", root=copy)[1]
    assert "about 10 s plus shell (not timed yet)," in listed("--only", "^(house|shell)$", root=copy)[1]
    (copy / "build/suite_seconds").write_text("unit 30\nmypy 60\n")
    suites, forecast = listed("--only", "^(house|shell|unit|mypy)$", root=copy)
    assert suites == {"unit": "30", "house": "10", "shell": "?", "mypy": "60"}
    assert f"about {'2 min' if LANES == 1 else '60 s'} plus shell" in forecast, "at least as long as the longest"


def test_a_run_says_the_forecast_first_and_shows_progress(copy: Path) -> None:
    """Suites of one command each; a setup that has nothing to do."""
    with_suites(copy, house="one true", unit="one false")
    done = run(copy, "^(house|unit)$")
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    left = 90 if LANES == 1 else 80
    assert lines[0] == f"suites: 2; time: about {left} s, on two cores, after the first build"
    assert re.search(rf"^== unit   \(suite 1 of 2; passed: \d+ s; left: about {left} s\)$", done.stdout, re.MULTILINE)
    assert re.search(r"^== house   \(suite 2 of 2; passed: \d+ s; left: about 10 s\)$", done.stdout, re.MULTILINE)
    assert lines[-1] == "1 passed, 1 failed, 0 skipped" and "failed: unit" in lines
    timed = (copy / "build/suite_seconds").read_text()
    assert re.fullmatch(r"house \d+\n", timed), "a suite that failed is not timed"


@pytest.mark.skipif(LANES == 1, reason="one CPU: suites run one after the other")
def test_two_suites_run_at_a_time_and_their_output_is_not_mixed(copy: Path) -> None:
    each = "echo {0}; touch {0}; for _ in $(seq 100); do [[ -e {1} ]] && break; sleep 0.1; done; echo {0}; [[ -e {1} ]] && one true"
    with_suites(copy, house=each.format("h", "u"), unit=each.format("u", "h"), shell="one true")
    done = run(copy, "^(house|unit|shell)$")
    assert done.returncode == 0 and done.stdout.endswith("\n3 passed, 0 failed, 0 skipped\n")
    assert "\nh\nh\n-- house " in done.stdout and "\nu\nu\n-- unit " in done.stdout


def test_one_build_at_a_time_and_one_installation(copy: Path) -> None:
    build = "(set -C; : >building) && sleep 0.5 && rm building"
    with_suites(copy, house="build dev all && package && one true", unit="build dev all && package && one true")
    for name, body in {"configure_and_build": build, "install_package": "echo installed"}.items():
        script, count = re.subn(
            rf"{name}\(\) \{{\n.*?\n\}}\n", f"{name}() {{ {body}; }}\n", (copy / "deploy/lib.sh").read_text(), flags=re.DOTALL
        )
        assert count == 1
        (copy / "deploy/lib.sh").write_text(script)
    done = run(copy, "^(house|unit)$")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("installed\n") == 1


def test_a_suite_that_ends_the_shell_has_failed(copy: Path) -> None:
    with_suites(copy, house="echo the reason; exit 3", unit="echo $nobody_has_set_this", shell="one true")
    done = run(copy, "^(house|unit|shell)$")
    assert done.returncode == 1 and "\nthe reason\n-- house ended its shell\n" in done.stdout
    assert "nobody_has_set_this" in done.stdout + done.stderr and "\n1 passed, 2 failed, 0 skipped\n" in done.stdout
    assert "failed: unit house" in done.stdout


@pytest.mark.skipif(LANES == 1, reason="one CPU: the next suite begins when the first has ended")
def test_an_interrupt_ends_all_suites(copy: Path) -> None:
    """Also a suite whose program catches the signal and ends by itself."""
    with_suites(copy, house="sleep 300", unit="bash -c 'trap \"exit 2\" INT; sleep 300' || true; sleep 300")
    words = [copy / "tests/run", "--only", "^(house|unit)$"]
    with (copy / "output").open("w") as output:
        # A shell cannot catch a signal that it inherits as ignored, as a job in the background does.
        heeds = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        running = subprocess.Popen(words, stdout=output, start_new_session=True, preexec_fn=heeds)
    left = ["pgrep", "-s", str(running.pid)]
    try:
        waited_for(lambda: "suite 2 of 2" in (copy / "output").read_text())
        running.send_signal(signal.SIGINT)
        running.wait(timeout=60)
        assert "failed: unit house" in (copy / "output").read_text()
        waited_for(lambda: subprocess.run(left, capture_output=True, text=True).stdout == "")
    finally:
        for process in subprocess.run(left, capture_output=True, text=True).stdout.split():
            subprocess.run(["kill", "-KILL", process])
        running.wait()


def waited_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def with_suites(copy: Path, **suites: str) -> None:
    """Replaces suites by commands, and the setup by nothing."""
    (copy / "deploy/setup").write_text("#!/bin/sh\n")
    (copy / "deploy/setup").chmod(0o755)
    script = (copy / "tests/run").read_text()
    for name, commands in suites.items():
        script, count = re.subn(rf"suite_{name}\(\) \{{\n.*?\n\}}\n", f"suite_{name}() {{ {commands}; }}\n", script, flags=re.DOTALL)
        assert count == 1
    (copy / "tests/run").write_text(script)


def run(copy: Path, only: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([copy / "tests/run", "--only", only], capture_output=True, text=True, timeout=60)
