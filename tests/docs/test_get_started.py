# SPDX-License-Identifier: Apache-2.0
"""The tutorial does what it says, the two kills included."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from pathlib import Path

import pytest
import tutorial
from processes import environment

from arraybridge import Broker, _bin


@pytest.fixture
def terminals(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables of two terminals whose programs start a daemon of their own."""
    pytest.importorskip("jax", reason="jax is not installed")
    folders = {Path(_bin.path(name)).parent for name in ("arraybridged", "arraybridgectl")}
    path = os.pathsep.join([str(Path(sys.executable).parent), *map(str, folders), os.environ["PATH"]])
    return environment(PATH=path, ARRAYBRIDGED_SERVER__EXIT_WHEN_IDLE="5s", ARRAYBRIDGE_LINGER="60s")


def test_every_command_has_a_terminal() -> None:
    """But those of the last section, which a reader may want."""
    without = [block.text for block in tutorial.blocks() if block.language == "sh" and not block.where]
    assert len(without) == 1 and "--directory" in without[0]


def test_it_can_be_followed_word_by_word(terminals: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="ab-") as home:
        printed = tutorial.follow(Path(home), terminals | {"XDG_RUNTIME_DIR": home}, install=False)
        with Broker(Path(home) / "arraybridge", start="never") as broker:
            assert broker.get("frame").sum() == 66  # a daemon with an array that no process has read stays longer
        while (Path(home) / "arraybridge/lifeline.sock").exists():
            time.sleep(0.01)  # the daemon ends by itself
    assert "Traceback" not in printed and "No such file" not in printed, printed
    runs = [list(map(int, re.findall(r"^frame (\d+)$", run, re.MULTILINE))) for run in re.split("the stream has ended|was lost", printed)]
    both_viewers, before, after, _ = runs
    assert both_viewers == sorted(set(both_viewers)) and set(range(100)) >= set(both_viewers)
    assert len(both_viewers) >= 99, "at most the image in the hands of the killed viewer was lost"
    assert before == list(range(len(before))) and len(before) > 10 and after == list(range(100))
