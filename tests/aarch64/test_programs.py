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
    "tests/unit/wire/wire_test": "",
    "tests/unit/client/client_view_test": "",
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


def test_they_are_programs_of_aarch64() -> None:
    if why := emulated.missing("daemon/arraybridged", "client/ctl/arraybridgectl", "client/libarraybridge.so.1.0"):
        pytest.skip(why)
    for name in ("daemon/arraybridged", "client/ctl/arraybridgectl", "client/libarraybridge.so.1.0"):
        header = subprocess.run(["readelf", "-h", emulated.BUILD / name], capture_output=True, text=True, check=True).stdout
        assert re.search(r"Machine: +AArch64", header), name
        needed = subprocess.run(["readelf", "-d", emulated.BUILD / name], capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r"\(NEEDED\).*\[(.+)\]", needed)) <= {
            "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libstdc++.so.6", "ld-linux-aarch64.so.1",
        }, name  # fmt: skip
