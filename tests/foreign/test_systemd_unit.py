"""The unit as systemd reads it, without a running systemd."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "deploy/systemd/arraybridged.service"
pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """A copy whose program exists: verify looks for it, and the daemon is not installed here."""
    text = UNIT.read_text()
    assert text.count("ExecStart=/usr/bin/arraybridged ") == 1
    copy = tmp_path / UNIT.name
    copy.write_text(text.replace("/usr/bin/arraybridged", shutil.which("true") or "/bin/true"))
    return copy


def test_verify_finds_nothing(unit: Path) -> None:
    answer = analyze("verify", "--man=no", unit)
    assert (answer.returncode, answer.stdout + answer.stderr) == (0, "")


def test_verify_would_find_something(unit: Path) -> None:
    unit.write_text(unit.read_text() + "\nRestrictAdressFamilies=AF_UNIX\n")
    assert "RestrictAdressFamilies" in analyze("verify", "--man=no", unit).stderr


def test_exposure_is_low(unit: Path) -> None:
    answer = analyze("security", "--offline=true", "--threshold=15", unit)  # tenths: 1.5
    assert answer.returncode == 0, answer.stdout
