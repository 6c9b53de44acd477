# SPDX-License-Identifier: Apache-2.0
"""Stages in containers of different images, which share one directory with the broker's container and nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import container
import pytest
from broker import ADDRESS, Broker
from engine import ROOT, Engine
from machine import eventually

STAGE = ROOT / "tests/containers/stage.py"
COUNT = 1 << 20


class Stage(container.Container):
    """tests/containers/stage.py with NumPy, which executes lines of its standard input."""

    def __init__(self, engine: Engine, image: str, mount: str) -> None:
        words = engine.run(image, "python", "-c", STAGE.read_text(), ADDRESS, "numpy", flags=["--rm", "--interactive", mount])
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=engine.environment)


@pytest.fixture
def broker(start: Callable[..., Broker]) -> Broker:
    return start()


@pytest.fixture
def stages(engine: Engine, python_stage: str, broker: Broker) -> Iterator[tuple[Stage, Stage]]:
    both = Stage(engine, python_stage, broker.mount), Stage(engine, python_stage, broker.mount)
    yield both
    for each in both:
        each.end()


def c_program(broker: Broker, c_stage: str, verb: str) -> str:
    return broker.engine.do(*broker.engine.run(c_stage, verb, flags=["--rm", broker.mount, f"--env=ARRAYBRIDGE_ADDRESS={ADDRESS}"])[1:])


def test_python_c_and_the_tool_meet_over_the_directory_alone(stages: Any, broker: Broker, c_stage: str) -> None:
    one, other = stages
    assert c_program(broker, c_stage, "put") == "put numbers\n"
    assert c_program(broker, c_stage, "get") == "got 1024 elements, sum 523776\n"
    seen = [stage.ask("get", "numbers") for stage in stages]
    assert [each["sum"] for each in seen] == [523776, 523776]
    assert "numbers" in broker.tool("ls")
    first, second = one.ask("namespaces"), other.ask("namespaces")
    assert {kind for kind in first["in"] if first["in"][kind] == second["in"][kind]} == set()
    assert first["shm"] == [] and first["pid"] <= 2


def test_an_array_is_one_file_in_every_container(stages: Any) -> None:
    one, other = stages
    made, seen = one.ask("put", "frame", 7), other.ask("get", "frame")
    assert made["inode"] == seen["inode"] and seen["name"].startswith("/memfd:arraybridge")
    assert (seen["start"], seen["rights"][:2]) == (7, "r-")


def test_stages_do_not_notice_that_the_daemon_is_killed(stages: Any, broker: Broker) -> None:
    one, other = stages
    one.ask("put", "frame", 1)
    held = other.ask("get", "frame")
    for number in range(3):
        broker.kill_daemon()
        assert other.ask("look", "frame")["sum"] == held["sum"]
        one.ask("put", f"next{number}", number)
        assert other.ask("get", f"next{number}")["start"] == number
    assert other.ask("get", "frame")["sum"] == held["sum"]


def test_stages_go_on_with_the_next_container_of_the_broker(stages: Any, broker: Broker, start: Callable[..., Broker]) -> None:
    """Its memory ends with the container, except for arrays that are in use."""
    one, other = stages
    one.ask("put", "frame", 1)
    held = other.ask("get", "frame")
    broker.kill()
    assert other.ask("look", "frame")["sum"] == held["sum"]
    start()
    eventually("the next broker has an array", lambda: "inode" in tried(one, "put", "frame", 2))
    eventually("the other stage gets it", lambda: tried(other, "get", "frame").get("start") == 2)


def tried(stage: Stage, *words: object) -> Any:
    """The answer, which may be an error while a stage connects again."""
    try:
        return stage.ask(*words)
    except AssertionError as error:
        return {"error": str(error)}


def test_the_sockets_directory_is_all_that_the_containers_mount(engine: Engine, broker: Broker) -> None:
    mounts = engine.do("inspect", "--format", "{{range .Mounts}}{{.Destination}} {{end}}", broker.container).split()
    assert mounts == [ADDRESS]
    assert {path.suffix for path in Path(broker.mount.removeprefix("--volume=").split(":")[0]).iterdir()} == {".sock", ""}
