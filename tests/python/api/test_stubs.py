# SPDX-License-Identifier: Apache-2.0
"""tests/house/check_stubs.py finds what of the extension's stub is not so; that nothing is, the suite `mypy` says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# What the stub says, what it is made to say, and what must be told of it.
LIES = [
    ("def withdraw(self, name: str, id: int = 0,", "def withdraw(self, title: str, id: int = 0,", "Core.withdraw"),
    ("def close(self, complete: bool = True)", "def close(self, complete: bool = False)", "ChannelEnd.close"),
    ("self, private: bool = False, timeout_s", "self, private: bool, timeout_s", "ChannelEnd.receive"),
    ("def settle(self) -> None: ...", "def settle(self, soon: bool) -> None: ...", "Core.settle"),
    ("    def flush(self) -> None: ...\n", "", "Core.flush"),
    ("def named(self, dtype: str,", "def named(self, kind: str,", "View.named"),
    ("def gpus() -> list[str]:", "def gpus(all: bool) -> list[str]:", "gpus"),
    ("def wrap(obj: Any, /) -> View:", "def warp(obj: Any, /) -> View:", "warp"),
]


def test_every_lie_of_the_stub_is_found(tmp_path: Path) -> None:
    stub = (ROOT / "python/arraybridge/_core.pyi").read_text()
    for said, instead, _ in LIES:
        assert stub.count(said) == 1, said
        stub = stub.replace(said, instead)
    copy = tmp_path / "arraybridge"  # the stub alone: whoever uses it would be told of first
    copy.mkdir()
    (copy / "__init__.py").touch()
    (copy / "_core.pyi").write_text(stub)
    config = tmp_path / "mypy.ini"
    config.write_text((ROOT / "mypy.ini").read_text().replace("mypy_path = python", f"mypy_path = {tmp_path}"))
    done = subprocess.run([sys.executable, ROOT / "tests/house/check_stubs.py", config], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    told = {line.split()[0] for line in done.stdout.splitlines()}
    assert told == {f"arraybridge._core.{name}" for _, _, name in LIES} | {"arraybridge._core.wrap"}, done.stdout
