# SPDX-License-Identifier: Apache-2.0
"""The example of docs/examples/inspection: each of its processes is killed in turn, and each result comes once, and in order."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import ROOT, environment

from arraybridge import Broker

PROGRAM = ROOT / "docs/examples/inspection/run.py"
PATIENCE_SECONDS = 300


@pytest.fixture
def inspection() -> Any:
    for module in ("torch", "mcap"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    spec = importlib.util.spec_from_file_location("inspection", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wait(line: Any, reached: Callable[[], bool], what: str) -> None:
    over = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert line.step(), f"it has ended: {what}"
        line.expose()
        assert time.monotonic() < over, f"not in time: {what}; { ({name: stage.lines[-2:] for name, stage in line.stages.items()}) }"


def recorded(path: Path) -> int:
    """The messages of a file, also of a recorder that was killed."""
    from mcap.exceptions import EndOfFile
    from mcap.reader import NonSeekingReader

    count = 0
    with path.open("rb") as file:
        try:
            for _ in NonSeekingReader(file).iter_messages(log_time_order=False):
                count += 1
        except EndOfFile:
            pass
    return count


def test_each_process_is_killed_in_turn(inspection: Any, tmp_path: Path) -> None:
    with Broker(start="private") as broker, inspection.Line(broker, 3600, str(tmp_path)) as line:
        wait(line, lambda: len(line.results()) >= 30, "the first results")
        for name in inspection.NAMES:
            stage, before, shown = line.stages[name], len(line.results()), len(line.stages["view"].lines)
            stage.kill()
            wait(line, lambda stage=stage: stage.process.poll() is None, f"{name} works again")
            wait(line, lambda before=before: len(line.results()) >= before + 30, f"results after the death of {name}")
            wait(line, lambda shown=shown: len(line.stages["view"].lines) > shown, f"a picture after the death of {name}")
        answers = len(line.answers)
        wait(line, lambda: len(line.answers) > answers, "the new camera answers")
        settings = len(line.answers) - 1
        wait(line, lambda: any(bright >= 11 + settings for *_, bright in line.results()), "frames of the new exposure")
        camera = line.stages["camera"]
        camera.arguments[1] = "0"  # the next camera ends at once, and with it the stream
        camera.kill()
        over = time.monotonic() + PATIENCE_SECONDS
        while line.step():
            assert time.monotonic() < over, "the stream does not end"
        results, missing = line.results(), line.missing()
        deaths = {name: stage.deaths for name, stage in line.stages.items()}
    assert deaths == {**dict.fromkeys(inspection.NAMES, 1), "camera": 2}
    sequences = [sequence for sequence, *_ in results]
    assert sequences == sorted(set(sequences)) and not set(sequences) & set(missing)
    assert sorted([*sequences, *missing]) == [*range(1, sequences[-1] + 1)]
    # One in the hands of each worker, and what the collector held or had received.
    assert len(missing) <= len(inspection.WORKERS) + 8
    numbers = [number for _, number, _ in results]
    assert numbers == sorted(set(numbers))
    files = [recorded(path) for path in tmp_path.glob("*.mcap")]
    assert len(files) == 2 and min(files) >= 1 and sum(files) <= sequences[-1]


@pytest.mark.usefixtures("inspection")
def test_the_program_says_what_the_deaths_have_cost() -> None:
    words = [sys.executable, PROGRAM, "--seconds", "6", "--kill-every", "2"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout
    told = re.search(r"the camera took (\d+) frames, and got (\d+) settings of its exposure\n(\d+) results, all in order", output)
    assert told and int(told[1]) >= int(told[3]) >= 1
    assert re.search(r"the viewer showed \d+; the recording has [\d,]+ bytes in \d file\(s\)", output)
