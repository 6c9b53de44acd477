# SPDX-License-Identifier: Apache-2.0
"""A real daemon in a temporary directory, and a Broker, or client processes, of the test's own."""

import functools
import tempfile
from collections.abc import Iterator

import pytest
from processes import Client, run_client, start_daemon, stop_daemon

import arraybridge
from arraybridge import _core
from arraybridge.adapters import cupy


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--calls", action="store_true", help="this process acquires nothing without a call")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--calls"):
        setattr(_core, "Core", functools.partial(_core.Core, catalogue=False))


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The directory of the session's daemon."""
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        # Every test has a namespace of its own, and what tests leave behind pays for them.
        room = ["--limit", "namespaces=16384"]
        daemon = start_daemon(directory, "--log-level", "warn", *room)
        yield directory
        assert stop_daemon(daemon) == 0


@pytest.fixture
def broker(address: str, request: pytest.FixtureRequest) -> Iterator["arraybridge.Broker"]:
    """A Broker in a namespace of the test's own."""
    with arraybridge.Broker(address, namespace=f"t{abs(hash(request.node.nodeid)):x}", start="never") as made:
        yield made


@pytest.fixture
def client(address: str) -> Client:
    """Runs code in another process; `address` is its first argument."""
    return lambda code, *arguments, **changes: run_client(code, address, *arguments, **changes)


@pytest.fixture
def no_remembered_cupy() -> Iterator[None]:
    """Its adapter imports CuPy once; in such a test it is another one every time."""
    cupy.module.cache_clear()
    yield
    cupy.module.cache_clear()
