"""Fixtures of the fault tests: a fresh daemon, its ledger, and the wire's messages for raw clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import Daemon, Ledger, daemon_in


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--calls", action="store_true", help="clients acquire nothing without a call")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--calls"):
        harness.client_flags.append("calls")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with daemon_in(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def ledger(daemon: Daemon) -> Ledger:
    return Ledger(daemon)


@pytest.fixture(scope="session")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """arraybridge.v1 as Python messages, generated from the .proto as any foreign client would."""
    pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    from foreign_client import generate  # once a process: protobuf knows a message by one file alone

    return generate(tmp_path_factory.mktemp("messages"))[0]
