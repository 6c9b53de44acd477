# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the fault tests: a fresh daemon, its ledger, and the wire's messages for raw clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hardened
import harness
import pytest
from harness import SIMULATED_CUDA, Daemon, Ledger, Memory, daemon_in

KINDS = ("host", "cuda_vmm", "cuda_ipc")
OVER_ALL_KINDS = ("test_death", "test_full")  # except for storms, the other files test sockets, pages and descriptors


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--calls", action="store_true", help="clients acquire nothing without a call")
    parser.addoption("--host", action="store_true", help="arrays lie on the host in every test")
    parser.addoption("--kept", action="store_true", help="daemons have a keeper")
    parser.addoption("--awake", action="store_true", help="daemons poll session queues before they sleep")
    parser.addoption("--hardened", action="store_true", help="daemons run under the restrictions of the shipped unit")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--calls"):
        harness.client_flags.append("calls")
    harness.kept = bool(config.getoption("--kept"))
    if config.getoption("--awake"):
        harness.spin_us = 50
    if config.getoption("--hardened"):
        if (reason := hardened.why_not()) is not None:
            pytest.exit(f"--hardened: {reason}", returncode=pytest.ExitCode.USAGE_ERROR)
        harness.hardened = True
    config.addinivalue_line("markers", "not_over(kinds, why): a law that does not hold for these kinds of memory")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    whole_file = metafunc.module.__name__.rpartition(".")[2] in OVER_ALL_KINDS
    if (whole_file or "storm" in metafunc.function.__name__) and "memory" in metafunc.fixturenames:
        # The simulated driver keeps its machine in a folder that a restricted daemon does not have.
        host = harness.hardened or metafunc.config.getoption("--host")
        metafunc.parametrize("memory", KINDS[:1] if host else KINDS, indirect=True)


@pytest.fixture
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Memory:
    """The memory that holds the arrays."""
    kind = getattr(request, "param", "host")
    for mark in request.node.iter_markers("not_over"):
        kinds, why = mark.args
        if kind in kinds:
            pytest.skip(f"{kind}: {why}")
    if kind != "host" and not SIMULATED_CUDA.exists():
        pytest.skip("the simulated driver is not built")
    return Memory(kind, tmp_path / "machine")


@pytest.fixture
def daemon(tmp_path: Path, memory: Memory) -> Iterator[Daemon]:
    with daemon_in(tmp_path / "broker", memory=memory) as running:
        yield running


@pytest.fixture
def ledger(daemon: Daemon) -> Ledger:
    return Ledger(daemon)


@pytest.fixture(scope="session")
def messages(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """arraybridge.v1 as Python messages, generated from the .proto files as by any foreign client."""
    pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    from foreign_client import generate  # once per process: protobuf allows a message in only one file

    return generate(tmp_path_factory.mktemp("messages"))[0]
