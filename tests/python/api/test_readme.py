# SPDX-License-Identifier: Apache-2.0
"""What the README shows is what happens: the two programs of its first example, as they stand there."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from processes import ROOT, environment

import arraybridge
from arraybridge.broker import discovery

README = ROOT / "README.md"


def programs() -> list[str]:
    """Producer and consumer: the two blocks of the first example."""
    section = README.read_text().split("## First example\n")[1].split("\n## ")[0]
    return [block.split("```")[0] for block in section.split("```python\n")[1:]]


def test_the_page_is_short():
    assert len(README.read_text().splitlines()) <= 150
    for program in programs():
        assert len([line for line in program.splitlines() if line]) <= 15


def test_two_terminals(monkeypatch):
    """The consumer may begin first: it waits for the other's array. Neither is told an address."""
    for framework in ("torch", "jax"):
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    producer, consumer = programs()
    with tempfile.TemporaryDirectory(prefix="ab-") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        monkeypatch.setenv("ARRAYBRIDGED_SERVER__EXIT_WHEN_IDLE", "300ms")
        monkeypatch.setenv("ARRAYBRIDGE_LINGER", "1s")  # an array that was found without a call counts as unread
        # Whatever there is of a system's broker on the machine, they find the one of their user.
        monkeypatch.setattr(discovery, "SYSTEM_DIRECTORY", f"{runtime}/system")
        there = f"from arraybridge.broker import discovery\ndiscovery.SYSTEM_DIRECTORY = '{runtime}/system'\n"
        with arraybridge.Broker() as broker:
            assert broker.list() == []
            reader = subprocess.Popen(
                [sys.executable, "-c", there + consumer], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
            )
            for _ in range(2):  # it can be run again
                subprocess.run([sys.executable, "-c", there + producer], check=True, env=environment())
            out, errors = reader.communicate()
        while (Path(runtime) / "arraybridge/lifeline.sock").exists():
            time.sleep(0.01)  # the daemon ends by itself
    assert reader.returncode == 0, errors
    shape, plan = out.split("\n", 1)
    assert shape == "torch.Size([1080, 1920]) torch.float32"
    assert "no copy" in plan
