# SPDX-License-Identifier: Apache-2.0
"""Both compositions, run by podman-compose: a broker and two stages, whose daemon is killed under them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker import ADDRESS
from engine import DESCRIPTORS, ROOT, Engine
from machine import eventually

# Where the limits of this machine are lower than those of the file, or it has no network for containers.
LESS = {
    "services": {
        "broker": {"network_mode": "none", "ulimits": {"nofile": DESCRIPTORS, "nproc": 4096, "memlock": 8 << 20}},
        "producer": {"network_mode": "none"},
        "consumer": {"network_mode": "none"},
    }
}


class Composition:
    """Its project is the test's own, so that its containers are known by name."""

    def __init__(self, engine: Engine, *files: Path, **variables: str) -> None:
        self.engine = engine
        self.words = [sys.executable, "-m", "podman_compose", "--project-name", "arraybridge-test", *(f"--file={path}" for path in files)]
        self.environment = {**engine.environment, **variables}

    def do(self, *words: str) -> str:
        done = subprocess.run([*self.words, *words], capture_output=True, text=True, env=self.environment, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def container(self, service: str) -> str:
        return f"arraybridge-test_{service}_1"

    def log(self, service: str) -> str:
        told = self.engine.try_("logs", self.container(service))
        return told.stdout + told.stderr

    def life(self) -> int:
        told = self.engine.try_("exec", self.container("broker"), "arraybridgectl", "-H", ADDRESS, "-o", "json", "info").stdout
        return int(json.loads(told)["life"]["number"]) if told else 0


@pytest.fixture
def compose(engine: Engine, image: str) -> Iterator[Callable[..., Composition]]:
    pytest.importorskip("podman_compose", reason="podman-compose is not installed")
    if not engine.own:
        pytest.skip("podman-compose runs podman alone")
    engine.do("tag", image, "localhost/arraybridged:latest")
    running: list[Composition] = []

    def start(*files: Path, **variables: str) -> Composition:
        running.append(Composition(engine, *files, **variables))
        running[-1].do("up", "--detach", "--no-build")
        return running[-1]

    yield start
    for each in running:
        each.do("down", "--volumes", "--timeout", "1")
    assert engine.do("ps", "--all", "--quiet") == ""


def kill_daemon(composition: Composition, number: int) -> None:
    broker = composition.container("broker")
    daemon, *_ = composition.engine.do("exec", broker, "cat", "/proc/1/task/1/children").split()
    composition.engine.do("exec", broker, "sh", "-c", f"kill -9 {daemon}")
    eventually("the next daemon serves", lambda: composition.life() == number + 1, lambda: composition.log("broker"))


def images_seen(composition: Composition, service: str) -> int:
    return composition.log(service).count("brightness")


def goes_on(composition: Composition, service: str) -> None:
    before = images_seen(composition, service)
    told = lambda: composition.log("broker") + composition.log(service)
    eventually("the viewer gets three more images", lambda: images_seen(composition, service) >= before + 3, told)


def test_the_example_runs_and_survives_kills(compose: Any, python_stage: str) -> None:
    composition = compose(ROOT / "docs/examples/compose/compose.yaml")
    eventually("the broker serves", lambda: composition.life() == 1, lambda: composition.log("broker"))
    goes_on(composition, "viewer")
    composition.engine.do("healthcheck", "run", composition.container("broker"))
    for number in (1, 2):
        kill_daemon(composition, number)
        goes_on(composition, "viewer")
    composition.engine.do("kill", composition.container("viewer"))
    composition.engine.do("start", composition.container("viewer"))
    goes_on(composition, "viewer")


def test_the_composition_of_deploy_takes_stages_of_any_image(compose: Any, engine: Engine, python_stage: str, tmp_path: Path) -> None:
    """Its health check is in the file, because engines ignore that of an image in the format of OCI."""
    images = {}
    for variable, program in {"PRODUCER_IMAGE": "camera", "CONSUMER_IMAGE": "viewer"}.items():
        images[variable] = engine.build(
            f"localhost/arraybridge-{program}", f'FROM {python_stage}\nCMD ["python", "{program}.py"]\n', tmp_path
        )
    less = tmp_path / "less.yaml"
    less.write_text(json.dumps(LESS))  # JSON is YAML
    composition = compose(ROOT / "deploy/container/compose.yaml", less, **images)
    eventually("the broker serves", lambda: composition.life() == 1, lambda: composition.log("broker"))
    for stage in ("producer", "consumer"):  # which have ended if they were faster than the broker: nothing starts them again
        composition.engine.do("start", composition.container(stage))
    goes_on(composition, "consumer")
    kill_daemon(composition, 1)
    goes_on(composition, "consumer")
    shown = engine.do("inspect", "--format", "{{json .Config.Healthcheck}}", composition.container("broker"))
    assert "ping" in shown
    engine.do("healthcheck", "run", composition.container("broker"))
    assert set(images.values()) <= {line.removesuffix(":latest") for line in engine.do("ps", "--format", "{{.Image}}").splitlines()}
