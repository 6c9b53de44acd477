# SPDX-License-Identifier: Apache-2.0
"""The Debian packages, built once for all tests; tests/system installs them, too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from test_install import BUILD


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The Debian packages by name: those in $ARRAYBRIDGE_PACKAGES, else those of the build."""
    if "ARRAYBRIDGE_PACKAGES" in os.environ:
        return by_name(Path(os.environ["ARRAYBRIDGE_PACKAGES"]))
    folder = tmp_path_factory.mktemp("packages")
    command = ["cpack", "-G", "DEB", "--config", str(BUILD / "CPackConfig.cmake"), "-B", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return by_name(folder)


def by_name(folder: Path) -> dict[str, Path]:
    machine = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    return {path.name.split("_")[0]: path for path in folder.glob(f"*_{machine}.deb")}
