"""Packages that are built once for all tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from test_install import BUILD


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The Debian packages by name."""
    folder = tmp_path_factory.mktemp("packages")
    command = ["cpack", "-G", "DEB", "--config", str(BUILD / "CPackConfig.cmake"), "-B", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return {path.name.split("_")[0]: path for path in folder.glob("*.deb")}
