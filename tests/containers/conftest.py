# SPDX-License-Identifier: Apache-2.0
"""A directory for sockets, and containers that share it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from container import Container


@pytest.fixture(scope="session", autouse=True)
def bubblewrap() -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    tried = subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"namespaces cannot be made here: {tried.stderr.strip()}")


@pytest.fixture
def sockets(tmp_path: Path) -> Path:
    made = tmp_path / "sockets"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def run(sockets: Path) -> Iterator[Callable[..., Any]]:
    """Starts a container of some class; all containers end with the test, the broker, which was started first, as the last."""
    running: list[Container] = []

    def start(kind: type[Container], *words: object, **settings: Any) -> Container:
        running.append(kind(sockets, *words, **settings))
        return running[-1]

    yield start
    for each in reversed(running):
        each.end()
