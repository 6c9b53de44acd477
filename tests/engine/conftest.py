# SPDX-License-Identifier: Apache-2.0
"""An engine, the images of a broker and of two kinds of stages, and brokers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import debian
import engine as engines
import pytest
from broker import Broker
from engine import ROOT, SLIM, Engine
from packages import packages
from test_install import prefix

__all__ = ["packages", "prefix"]

EXAMPLES = ROOT / "docs/examples"


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with engines.engine() as found:
        yield found


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    return engine.image()


@pytest.fixture(scope="session")
def python_stage(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of docs/examples/compose: Python, NumPy, the wheel and two programs."""
    context = tmp_path_factory.mktemp("python_stage")
    shutil.copytree(EXAMPLES / "compose", context / "docs/examples/compose")
    shutil.copy(ROOT / ".dockerignore", context)
    with debian.locked(ROOT / "build/logs/build.lock"):
        made = subprocess.run([ROOT / "deploy/wheel", context / "dist"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    if engine.own:
        engine.python()
    return engine.build("arraybridge-stage", (EXAMPLES / "compose/Containerfile").read_text(), context, online=not engine.own)


@pytest.fixture(scope="module")
def c_stage(engine: Engine, packages: dict[str, Path], prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program of docs/examples/c, and the package of its library: without Python."""
    context = tmp_path_factory.mktemp("c_stage")
    shutil.copy(packages["libarraybridge1"], context / "library.deb")
    (library,) = prefix.rglob("libarraybridge.so.1")
    words = ["gcc", "-std=c11", EXAMPLES / "c/main.c", "-o", context / "main", f"-I{prefix}/include", library]
    subprocess.run(words, check=True)
    if engine.own:
        engine.slim()
    steps = "COPY library.deb main /stage/\nRUN dpkg --install /stage/library.deb\nUSER 1000:1000\n"
    return engine.build("arraybridge-c-stage", f'FROM {SLIM}\n{steps}ENTRYPOINT ["/stage/main"]\n', context)


@pytest.fixture
def sockets(tmp_path: Path) -> Path:
    """The directory that containers share."""
    made = tmp_path / "sockets"
    made.mkdir()
    made.chmod(0o777)
    return made


@pytest.fixture
def start(engine: Engine, image: str, sockets: Path) -> Iterator[Callable[..., Broker]]:
    running: list[Broker] = []

    def started(*flags: str) -> Broker:
        running.append(Broker(engine, image, sockets, *flags))
        return running[-1]

    yield started
    for each in running:
        each.end()
