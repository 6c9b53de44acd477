# SPDX-License-Identifier: Apache-2.0
"""The daemon accepts the examples for conf.d beside the shipped file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from foreign_client import DAEMON, ROOT

CONFIG = ROOT / "deploy/config"
EXAMPLES = sorted((CONFIG / "conf.d").iterdir())


def configured(tmp_path: Path, *examples: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "conf.d").mkdir()
    for example in examples:
        shutil.copy(example, tmp_path / "conf.d" / example.stem)
    file = shutil.copy(CONFIG / "arraybridged.toml", tmp_path)
    environment = {name: text for name, text in os.environ.items() if not name.startswith("ARRAYBRIDGED_")}
    return subprocess.run([DAEMON, "--config", file, "--print-config"], capture_output=True, text=True, env=environment)


def test_the_shipped_file_includes_none_of_them() -> None:
    assert EXAMPLES
    assert {path.suffix for path in EXAMPLES} == {".example"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_valid_unchanged(tmp_path: Path, example: Path) -> None:
    done = configured(tmp_path, example)
    assert (done.returncode, done.stderr) == (0, "")
    said = len(re.findall(r"^\w+ = ", example.read_text(), re.MULTILINE))
    assert done.stdout.count(f"# {tmp_path}/conf.d/{example.stem}:") == said > 0


def test_all_examples_together_are_valid(tmp_path: Path) -> None:
    done = configured(tmp_path, *EXAMPLES)
    assert (done.returncode, done.stderr) == (0, "")
