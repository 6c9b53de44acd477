# SPDX-License-Identifier: Apache-2.0
"""A daemon for the programs of the documents, and what they are started with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from processes import environment, start_daemon, stop_daemon


@pytest.fixture
def variables() -> Iterator[dict[str, str]]:
    """The environment of programs that find a daemon of the test's own."""
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "warn")
        yield environment(ARRAYBRIDGE_ADDRESS=directory)
        assert stop_daemon(daemon) == 0
