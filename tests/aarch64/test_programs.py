# SPDX-License-Identifier: Apache-2.0
"""Tests in C++, compiled for aarch64, at both sizes of pages that its kernels have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import emulated
import pytest

# And which of their tests ask for something that qemu does not do: it populates nothing (MADV_POPULATE_WRITE), and maps memory
# of its own.
TESTS = {
    "tests/unit/boundary/boundary_parts_test": "",
    "tests/unit/memory/memory_test": "HostBackend.EveryPageIsPopulatedBeforeTheBlockIsReturned:MapFile.LeavesNoMapping*",
}


@pytest.mark.parametrize("page", emulated.PAGES)
@pytest.mark.parametrize("program", TESTS, ids=lambda path: Path(path).name)
def test_the_tests_of_a_room_pass(program: str, page: int, tmp_path: Path) -> None:
    if why := emulated.missing(program):
        pytest.skip(why)
    words = emulated.command(program, page, *([f"--gtest_filter=-{TESTS[program]}"] if TESTS[program] else []))
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert re.search(r"^\[  PASSED  \] [1-9]\d* tests?\.", done.stdout, re.MULTILINE)
