# SPDX-License-Identifier: Apache-2.0
"""Without a GPU, tests/gpu/run runs end to end on the simulated driver."""

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import benches
import plan
import suites
from expected import OUTCOMES, check_limits, check_simulated_run
from plan import Planned
from pythons import Python
from steps import Runner

ROOT = HERE.parents[1]
BUILD = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build/dev"))
DRIVER = BUILD / "tests/simulated_cuda/libsimulated_cuda.so"


def planned(*parts: str) -> list[Planned]:
    """The steps of these parts, or of all."""
    return plan.steps(Runner(dict(os.environ), None), BUILD / "tests/gpu/gpu_experiments", list(parts or plan.PARTS))


@contextlib.contextmanager
def simulated_machine() -> Iterator[dict[str, str]]:
    """The environment of programs that find the simulated driver."""
    with tempfile.TemporaryDirectory() as libraries:
        Path(libraries, "libcuda.so.1").symlink_to(DRIVER)
        yield os.environ | {"LD_LIBRARY_PATH": libraries}


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
    rows = [
        {"id": name, "bytes": 4096, "us": us}
        for name, us in (("torch_resend", 60), ("torch_new", 90), ("broker_torch", 20), ("hand_off_sync", 5))
    ]
    table = benches.table(rows)
    assert "| *torch, same tensor / Broker* | 3.00 |" in table
    assert "| *torch, new tensor / Broker* | 4.50 |" in table


def test_a_machine_without_a_driver_is_told_so(tmp_path: Path) -> None:
    if any(
        Path(folder, "libcuda.so.1").exists()
        for folder in (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/local/nvidia/lib64", "/usr/lib64")
    ):
        return  # this machine has a GPU
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), "--build", str(tmp_path)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 69
    assert "no card can be used here: libcuda.so.1" in done.stderr


def test_a_step_ends_at_its_limit_with_all_that_it_started(tmp_path: Path) -> None:
    """The second process has a session of its own, and holds the output open."""
    late = tmp_path / "late"
    runner = Runner(dict(os.environ), time.monotonic() + 600)
    status, said = runner.output(["sh", "-c", f"echo begun; setsid sh -c 'sleep 60; touch {late}' & sleep 600"], 1)
    assert (status, said) == (124, "begun\n")
    assert not late.exists(), "it waited for the end of the second process"


def test_a_step_leaves_no_process_behind(tmp_path: Path) -> None:
    number = tmp_path / "pid"
    runner = Runner(dict(os.environ), None)
    status, _ = runner.output(
        ["sh", "-c", f"setsid sh -c 'echo $$ >{number}; exec sleep 600' & while [ ! -s {number} ]; do sleep 0.01; done"], 1
    )
    assert status == 0, "without an end of the run, its steps have no limit"
    assert not running(int(number.read_text()))


def test_a_step_ends_also_what_hides_its_origin(tmp_path: Path) -> None:
    """A process with a session and a parent of its own, and nothing of the step's environment."""
    number = tmp_path / "pid"
    hiding = f"env -i PATH=$PATH setsid sh -c 'sleep 600 & echo $! >{number}; exit' & while [ ! -s {number} ]; do sleep 0.01; done"
    status, _ = Runner(dict(os.environ), time.monotonic() + 600).output(["sh", "-c", f"{hiding}; sleep 600"], 1)
    assert status == 124
    assert not running(int(number.read_text()))


def test_a_step_ends_with_the_run_that_is_killed(tmp_path: Path) -> None:
    number = tmp_path / "pid"
    code = f"from steps import Runner; Runner(dict(), None).output(['/bin/sh', '-c', 'echo $$ >{number}; exec sleep 600'], 1)"
    run = subprocess.Popen([sys.executable, "-c", code], cwd=HERE)
    while not number.exists() or not number.read_text():
        time.sleep(0.01)
    pid = int(number.read_text())
    run.kill()
    run.wait()
    while running(pid):
        time.sleep(0.01)


def running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def test_facts_about_a_card_are_asked_by_a_process_that_ends() -> None:
    """A process that has initialised the driver keeps the GPU open, and E3b asks what happens when none does."""
    code = "import machine; print(machine.facts(simulated=True)['driver']); print('simulated_cuda' in open('/proc/self/maps').read())"
    with simulated_machine() as environment:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=HERE, check=True)
    assert done.stdout.splitlines() == [str(DRIVER.resolve()), "False"]


def test_every_experiment_can_finish_within_its_limit(tmp_path: Path) -> None:
    with simulated_machine() as environment:
        command = [sys.executable, HERE / "run.py", "--build", BUILD, "--simulated", "--out", tmp_path, "experiments"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (written,) = tmp_path.glob("simulated-*-experiments.json")
    check_limits(json.loads(written.read_text())["experiments"], planned())


def test_a_machine_that_cannot_build_takes_the_prebuilt_extension(tmp_path: Path) -> None:
    broken = tmp_path / "bin/cmake"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    core = tmp_path / f"prebuilt/_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    command = [HERE / "extension", tmp_path, sys.executable, "60"]
    environment = os.environ | {"PATH": f"{broken.parent}:{os.environ['PATH']}"}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "there is no prebuilt one" in refused.stdout
    core.parent.mkdir()
    core.write_text("built elsewhere")
    subprocess.run(command, env=environment, capture_output=True, check=True)
    assert (tmp_path / "site/arraybridge" / core.name).read_text() == "built elsewhere"


def test_the_plan_fits_into_the_time_of_a_lent_machine() -> None:
    assert all(step.estimate_s <= step.limit_s for step in planned())
    assert sum(step.estimate_s for step in planned()) <= plan.TOTAL_S
    for parts in plan.COMMANDS:
        assert sum(step.estimate_s for step in planned(*parts)) <= plan.WHOLE_RUN_S
    last = planned(*plan.COMMANDS[0])[-1]
    assert last.name == "E3b", "nothing else may have the GPU open meanwhile"


def test_the_plan_has_every_experiment_and_test() -> None:
    steps = [step.name for step in planned() if step.part != "benchmarks"]
    assert sorted(steps) == sorted([plan.FACTS.name, plan.WAIT_FOR_EXTENSION.name, *OUTCOMES, *suites.TESTS])


def test_the_plan_is_listed_with_the_sum_of_its_estimates() -> None:
    command = [sys.executable, HERE / "run.py", "--build", BUILD, "--plan"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first, *_, last = done.stdout.splitlines()
    assert first.split() == ["part", "group", "step", "s", "limit", "sum"]
    assert int(last.split()[-1]) == sum(step.estimate_s for step in planned())


def test_a_step_for_which_no_time_is_left_is_not_begun(tmp_path: Path) -> None:
    """As on a card, where time is limited."""
    with simulated_machine() as environment:
        environment["SIMULATED_CUDA"] = "guest;memory=67108864"
        command = [sys.executable, HERE / "run.py", "--build", BUILD, "--out", tmp_path, "--seconds", "21", "experiments"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {each["experiment"]: each["outcome"] for each in kept(tmp_path)["experiments"]}
    assert outcomes["E1"] == "as expected"
    assert outcomes["E3b"] == "not run: no time left for its 26 s"


def test_the_first_hand_off_needs_no_python() -> None:
    with simulated_machine() as environment:
        runner = Runner(environment | {"ARRAYBRIDGE_CUDA_DRIVER": str(DRIVER.resolve())}, None)
        here = suites.Here(runner, BUILD, True, lambda: Python(missing="the extension is not built"))
        step = suites.TESTS[plan.FIRST_HAND_OFF.name](here, plan.FIRST_HAND_OFF.name, 60)
    assert (step.outcome, step.passed) == ("passed", 4), step.said


def test_a_run_that_is_killed_keeps_what_it_had(tmp_path: Path) -> None:
    with simulated_machine() as environment:
        command = [sys.executable, HERE / "run.py", "--build", BUILD, "--simulated", "--out", tmp_path]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        try:
            while len(kept(tmp_path)["experiments"]) < 3:
                assert run.poll() is None
                time.sleep(0.01)
        finally:
            run.kill()
            run.wait()
    result = kept(tmp_path)
    assert all(each["outcome"] == "as expected" for each in result["experiments"])
    (page,) = tmp_path.glob("*.md")
    assert f"it ended while it ran {result['running']}." in page.read_text()


def kept(folder: Path) -> dict[str, list[dict[str, str]]]:
    files = list(folder.glob("*.json"))
    return json.loads(files[0].read_text()) if files else {"experiments": []}


def jax_on_the_cpu(program: str, commands: list[str]) -> list[str]:
    """The answers of a program for a card, here with the CPU of JAX and a broker without a GPU."""
    pytest.importorskip("jax")
    arraybridge = pytest.importorskip("arraybridge")
    with arraybridge.Broker(start="private") as broker:
        done = subprocess.run(
            [sys.executable, HERE / "frameworks" / program, broker.address],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_jax_reads_a_view_in_place_in_the_program_for_a_card() -> None:
    assert jax_on_the_cpu("jax_program.py", ["put own 14", "read own 14"]) == ["(1, 0)", "right"]


def test_jax_hands_on_what_is_not_computed_yet_in_the_program_for_a_card() -> None:
    commands = ["hand_on later jax default put", "read later jax default put", "put_complete full jax 2", "read_late full jax default"]
    assert jax_on_the_cpu("order_program.py", [*commands, "put_complete full jax 3", "copied"]) == [
        "ok",
        "right",
        "ok",
        "ok",
        "ok",
        "right",
    ]


def test_the_tests_that_are_chosen_for_a_card_exist() -> None:
    for pattern in suites.MAPPERS_ON_A_CARD.split(":"):
        command = [BUILD / "tests/unit/client/client_cuda_test", "--gtest_list_tests", f"--gtest_filter={pattern}"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        assert listed.stdout.count("\n  "), pattern
