# SPDX-License-Identifier: Apache-2.0
"""Servers and callers of services as processes of a test."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import children

import arraybridge

HERE = Path(__file__).parent
Process = subprocess.Popen[str]


@pytest.fixture
def begin(address: str, broker: arraybridge.Broker) -> Iterator[Callable[..., Process]]:
    """Starts a program of this folder in this test's namespace, or at another broker."""
    with children() as start:

        def run(program: str, *arguments: object, at: str = "") -> Process:
            where = [at, "default"] if at else [address, broker.namespace]
            return start(HERE / program, *where, *arguments)

        yield run


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """Where servers write which requests they begin."""
    return tmp_path / "record"


@pytest.fixture
def serve(begin: Callable[..., Process], record: Path) -> Callable[..., Process]:
    """Starts a server, which is open when this returns."""

    def run(kind: str = "double", name: str = "double", **where: str) -> Process:
        server = begin("server.py", name, kind, record, **where)
        assert server.stdout is not None
        assert server.stdout.readline().startswith("open")
        return server

    return run
