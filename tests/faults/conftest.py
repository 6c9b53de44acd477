"""Fixtures of the fault tests: a fresh daemon, its ledger, and the wire's messages for raw clients."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT, Daemon, Ledger, daemon_in


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
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    out = tmp_path_factory.mktemp("messages")
    files = [str(ROOT / "proto/arraybridge/v1" / name) for name in ("array.proto", "broker.proto")]
    assert protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"--python_out={out}", *files]) == 0
    # The generated folder is called arraybridge, as our package is: put it beside, under the package's own path.
    import arraybridge

    arraybridge.__path__.append(str(out / "arraybridge"))
    return importlib.import_module("arraybridge.v1.broker_pb2")
