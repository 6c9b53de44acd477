# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/guides/record-and-replay.md run, and the examples in the docstrings do what they say."""

from __future__ import annotations

import doctest
import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import ROOT
from recordings import PATIENCE_S, sender

from arraybridge import Broker, recording
from arraybridge.recording import Recorder, tee

torch = pytest.importorskip("torch", reason="torch is not installed")

PAGE = (ROOT / "docs/guides/record-and-replay.md").read_text()
BLOCKS = re.findall(r"<!-- run: host -->\n```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_program_of_the_guide_runs(number: int, tmp_path: Path) -> None:
    assert len(BLOCKS) == PAGE.count("```python") == 2
    (tmp_path / "program.py").write_text(BLOCKS[number])
    runpy.run_path(str(tmp_path / "program.py"))


def documented() -> dict[str, Any]:
    """The public names, and the methods of the public classes."""
    found: dict[str, Any] = {name: getattr(recording, name) for name in recording.__all__}
    for name, kind in list(found.items()):
        if inspect.isclass(kind) and not issubclass(kind, tuple):
            methods = inspect.getmembers(kind, inspect.isfunction)
            found |= {f"{name}.{method}": of for method, of in methods if not method.startswith("_")}
    return found


@pytest.mark.parametrize("name", documented())
def test_the_example_of_a_docstring_works(name: str, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = inspect.cleandoc(documented()[name].__doc__)
    parsed = doctest.DocTestParser().get_doctest(text, names(name, broker, tmp_path), name, None, None)
    assert parsed.examples, "it has no example"
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    runner.run(parsed, out=said.append, clear_globs=False)
    for value in parsed.globs.values():
        if isinstance(value, Recorder | recording.Tee):
            value.close()
    assert runner.failures == 0, "".join(said)


def names(name: str, broker: Broker, folder: Path) -> dict[str, Any]:
    """The objects that an example uses without having made them."""
    found: dict[str, Any] = {"np": np, "broker": broker}
    if name.startswith(("Recorder.", "ChannelCounts")):
        found["recorder"] = Recorder(folder / "run.mcap", ["frames"], broker=broker)
    if name.startswith("Tee."):
        found["frames"] = tee(broker.channel("frames"))
    if name.lower().startswith("replay"):
        with Recorder(folder / "run.mcap", ["frames"], broker=broker) as recorder:
            out = sender(broker, "frames")
            out.send(np.zeros(3))
            out.close()
            assert recorder.wait(PATIENCE_S)
    return found
