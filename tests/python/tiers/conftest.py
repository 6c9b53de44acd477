# SPDX-License-Identifier: Apache-2.0
"""A broker with a directory for files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tier_cases import Tier


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[Tier]:
    made = Tier(tmp_path)
    yield made
    made.stop()
