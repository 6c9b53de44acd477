# SPDX-License-Identifier: Apache-2.0
"""The example of docs/guides/pipelines.md: each stage is killed, and the frames that do not arrive are those in its hands.

The stages run in environments of one framework each: of what is installed here, or, with ARRAYBRIDGE_ENVIRONMENTS, in
those of `tests/run --only environments`, whose versions conflict. ARRAYBRIDGE_LONG: five minutes of kills, drawn by chance,
and ten minutes under a broker that is killed once a second.
"""

import bisect
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import environments
import pytest
from processes import ROOT, daemons_of, start_daemon, stop_daemon

from arraybridge import Broker

EXAMPLE = ROOT / "docs/examples/pipeline"
SECONDS = 300 if os.environ.get("ARRAYBRIDGE_LONG") else 10
PATIENCE_SECONDS = 600  # until frames arrive: only a pipeline that is stuck needs as long
OLDEST = os.environ.get("ARRAYBRIDGE_ENVIRONMENTS")
THIRD = "tensorflow" if OLDEST else "jax"
FRAMEWORKS = {"invert": "torch", "shrink": THIRD}


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


supervisor = loaded("supervisor")


@pytest.fixture(scope="module")
def pythons() -> Iterator[dict[str, str]]:
    """The interpreters of the stages that have an environment of their own."""
    if OLDEST:
        yield {name: f"{OLDEST}/oldest-{framework}/bin/python" for name, framework in FRAMEWORKS.items()}
        return
    for framework in FRAMEWORKS.values():
        if not importlib.util.find_spec(framework):
            pytest.skip(f"{framework} is not installed")
    with tempfile.TemporaryDirectory(prefix="ab-") as folder:
        yield {name: str(environments.made(framework, Path(folder, framework))) for name, framework in FRAMEWORKS.items()}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(start="private") as made:
        yield made


@pytest.fixture
def pipeline(broker: Broker, pythons: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Any]:
    with supervisor.Supervisor(broker.address, request.param, THIRD, pythons) as made:
        yield made
        check_frames(made)
    check_ledger(broker)


def wait(pipeline: Any, reached: Callable[[], bool], what: str) -> None:
    over = time.monotonic() + PATIENCE_SECONDS
    pipeline.run(lambda: reached() or time.monotonic() > over)
    assert reached(), f"{what}: not in {PATIENCE_SECONDS} s; {state(pipeline)}"


def wait_for_frames(pipeline: Any, count: int, what: str) -> None:
    """Returns when the sink has got as many frames that the camera took after this call."""
    taken, arrived = pipeline.stages["camera"].frames, pipeline.stages["sink"].frames
    latest = taken[-1] if taken else -1
    wait(pipeline, lambda: len(arrived) >= count and arrived[-count] > latest, what)


def wait_for_end(pipeline: Any, stream_seconds: float = 0) -> None:
    over = time.monotonic() + stream_seconds + PATIENCE_SECONDS
    assert pipeline.run(lambda: time.monotonic() > over), f"it does not end: {state(pipeline)}"


def state(pipeline: Any) -> str:
    return "; ".join(f"{name}: {stage.frames[-3:]}, {len(stage.deaths)} deaths" for name, stage in pipeline.stages.items())


def kill(pipeline: Any, name: str) -> None:
    """Returns when the Supervisor has restarted the stage; one that has ended in order is left alone."""
    stage = pipeline.stages[name]
    process = stage.process
    process.kill()
    wait(pipeline, lambda: stage.process is not process or process.returncode is not None, f"{name} is restarted")


def stop_camera(pipeline: Any) -> None:
    """Returns when all frames have arrived, so nothing is queued."""
    camera, sink = pipeline.stages["camera"], pipeline.stages["sink"]
    camera.process.send_signal(signal.SIGSTOP)
    wait(pipeline, lambda: sink.frames[-1:] >= camera.frames[-1:], "all frames have arrived")


def end_stream(pipeline: Any) -> None:
    """Kills the camera; the next one has no time left."""
    camera = pipeline.stages["camera"]
    camera.command[-1] = "0"
    kill(pipeline, "camera")
    wait(pipeline, lambda: camera.process.returncode == 0, "the stream has ended")


def lost_by(before: list[int], stage: Any, arrived: set[int]) -> list[int]:
    """What the stage got and did not hand on: one frame for each death at most, the next one after the last that it had
    handed on.
    """
    lost = sorted(set(before) - set(stage.frames) - arrived)
    places = [bisect.bisect(stage.frames, frame) for frame in lost]
    for place in set(places):
        last = stage.frames[place - 1] if place else -1
        deaths = sum(death.last == last for death in stage.deaths)
        assert places.count(place) <= deaths, f"{stage.name} lost {lost} of {before}, after {last}, in {deaths} deaths"
    return lost


def check_frames(pipeline: Any) -> None:
    """Frames are in order everywhere, and only those are lost that a stage which was killed had in its hands."""
    stages = pipeline.stages
    for stage in stages.values():
        assert stage.frames == sorted(set(stage.frames)), f"{stage.name}: not in order, or twice"
        assert {death.status for death in stage.deaths} <= {-signal.SIGKILL}, f"{stage.name}: {stage.deaths}"
    camera, arrived = stages["camera"], set(stages["sink"].frames)
    assert len(arrived - set(camera.frames)) <= len(camera.deaths), "more than those that it sent and did not print"
    before, lost = camera.frames, {}
    for name in supervisor.NAMES[1:]:
        lost[name] = lost_by(before, stages[name], arrived)
        before = [frame for frame in before if frame not in lost[name]]
    assert {stage.name: frames for stage, frames in pipeline.lost()} == lost


def check_ledger(broker: Broker) -> None:
    """Nothing of the pipeline is left in the broker."""
    zero = {"shares", "withdrawn_shares", "queued_shares", "channels", "leases", "tickets", "waiting", "arenas", "charged_bytes"}
    deadline = time.monotonic() + PATIENCE_SECONDS
    # Memory goes back on a thread of the daemon's own.
    while ((stats := broker.stats())["sessions"] > 1 or any(stats[name] for name in zero)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert stats["sessions"] == 1 and not {name: stats[name] for name in zero if stats[name]}


@pytest.mark.parametrize("pipeline", [1e9], indirect=True)
def test_every_stage_is_killed_in_turn(pipeline: Any) -> None:
    wait_for_frames(pipeline, 5, "the first frames")
    for name in supervisor.NAMES:
        kill(pipeline, name)
        wait_for_frames(pipeline, 5, f"frames after the death of {name}")
    assert [len(stage.deaths) for stage in pipeline.stages.values()] == [1, 1, 1, 1]
    end_stream(pipeline)
    wait_for_end(pipeline)


@pytest.mark.parametrize("pipeline", [1e9], indirect=True)
def test_a_stage_that_is_killed_when_the_stream_has_ended_learns_it_again(pipeline: Any) -> None:
    """Although nothing is queued for it."""
    wait_for_frames(pipeline, 5, "the first frames")
    stop_camera(pipeline)
    for name in supervisor.NAMES[1:]:
        pipeline.stages[name].process.send_signal(signal.SIGSTOP)
    end_stream(pipeline)
    for name in supervisor.NAMES[1:]:
        kill(pipeline, name)
    wait_for_end(pipeline)


@pytest.mark.parametrize("pipeline", [1e9], indirect=True)
def test_stages_that_are_killed_when_all_is_done_are_not_waited_for(pipeline: Any, tmp_path: Path) -> None:
    """They wait for the next stream when they are started again, or are not started again."""
    invert = pipeline.stages["invert"]
    usual = invert.command
    for name in ("invert", "sink"):
        stage, left = pipeline.stages[name], tmp_path / name
        left.write_text(f"#!/bin/sh\n{shlex.join(stage.command)} && touch {left}.done && exec sleep 1000\n")
        left.chmod(0o755)
        stage.command = [str(left)]
        kill(pipeline, name)
    wait_for_frames(pipeline, 5, "the first frames")
    stop_camera(pipeline)
    pipeline.stages["shrink"].process.send_signal(signal.SIGSTOP)
    end_stream(pipeline)
    wait(pipeline, (tmp_path / "invert.done").exists, "invert has handed on everything")
    invert.command = usual
    kill(pipeline, "invert")
    pipeline.stages["shrink"].process.send_signal(signal.SIGCONT)
    wait_for_end(pipeline)
    assert (tmp_path / "sink.done").exists() and invert.process.returncode is None


def test_a_broker_that_is_started_again(pythons: dict[str, str], tmp_path: Path) -> None:
    """Stages end with BrokerUnavailable, and the next ones go on."""
    tmp_path.chmod(0o700)
    daemon = start_daemon(str(tmp_path), "--log-level", "warn")
    with supervisor.Supervisor(str(tmp_path), 1e9, THIRD, pythons) as pipeline:
        wait_for_frames(pipeline, 5, "the first frames")
        daemon.kill()
        daemon.wait()
        daemon = start_daemon(str(tmp_path), "--log-level", "warn")
        wait_for_frames(pipeline, 5, "frames by the next broker")
        assert all(stage.frames == sorted(set(stage.frames)) for stage in pipeline.stages.values())
    assert stop_daemon(daemon) == 0


@pytest.mark.parametrize("pipeline", [2 * SECONDS], indirect=True)
def test_a_broker_that_is_killed_every_second_is_not_noticed(pipeline: Any, broker: Broker) -> None:
    """Under its keeper, also while stages start: no stage dies, and every frame that the camera sent arrives."""
    kills = 0
    over = threading.Event()

    def kill_broker() -> None:
        nonlocal kills
        while not over.wait(1):
            for pid in daemons_of(broker.address):
                os.kill(pid, signal.SIGKILL)
                kills += 1

    killer = threading.Thread(target=kill_broker)
    killer.start()
    try:
        wait_for_end(pipeline, 2 * SECONDS)
    finally:
        over.set()
        killer.join()
    stages = pipeline.stages
    print(f"{kills} kills, {len(stages['sink'].frames)} frames")
    assert kills >= SECONDS
    assert [len(stage.deaths) for stage in stages.values()] == [0] * 4
    assert stages["sink"].frames == stages["camera"].frames


@pytest.mark.parametrize("pipeline", [SECONDS], indirect=True)
def test_stages_are_killed_by_chance(pipeline: Any) -> None:
    """Also while they start, while others are down, and while the stream ends."""
    pipeline.run(supervisor.Killer(pipeline.stages, 2))
    wait_for_end(pipeline, SECONDS)
    deaths = sum(len(stage.deaths) for stage in pipeline.stages.values())
    print(f"{deaths} deaths, {len(pipeline.stages['sink'].frames)} frames")
    assert deaths >= SECONDS / 2 - 1


def supervised(*options: str) -> "subprocess.CompletedProcess[str]":
    # Without PYTHONPATH, as a user starts it: the stages find the package of their own environments.
    return subprocess.run(
        [sys.executable, str(EXAMPLE / "supervisor.py"), *options], capture_output=True, text=True, check=False
    )  # fmt: skip


def test_the_command(pythons: dict[str, str]) -> None:
    own = [word for name, python in pythons.items() for word in ("--python", f"{name}={python}")]
    done = supervised("--seconds", "2", "--framework", THIRD, *own)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("has ended in order") == 4 and done.stdout.count("0 deaths, lost: []") == 3
    refused = supervised("--python", "torch=/nowhere")
    assert refused.returncode == 2 and "must be STAGE=INTERPRETER, with a stage of camera, invert" in refused.stderr


def test_a_stage_that_always_fails_ends_the_pipeline(broker: Broker, tmp_path: Path) -> None:
    with supervisor.Supervisor(broker.address, 1e9, "no_framework") as pipeline:
        with pytest.raises(SystemExit, match="shrink: failed 5 times without a frame; its output above says why"):
            pipeline.run()
        assert [death.status for death in pipeline.stages["shrink"].deaths] == [1] * 5
