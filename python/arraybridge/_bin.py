# SPDX-License-Identifier: Apache-2.0
"""The executables in this package, and their console entry points."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path


def path(name: str) -> str:
    """The path of an executable: beside the package, else (the daemon) $ARRAYBRIDGE_DAEMON, else on PATH.

    Raises:
        FileNotFoundError: it is in none of these places.
    """
    if (beside := beside_package(name)) is not None:
        return str(beside)
    chosen = os.environ.get("ARRAYBRIDGE_DAEMON") if name == "arraybridged" else None
    found = chosen or shutil.which(name)
    if found is None:
        where = "in the package, in $ARRAYBRIDGE_DAEMON or on PATH"
        raise FileNotFoundError(f"there is no executable {name} {where}: install the wheel, which has it")
    return found


def beside_package(name: str) -> Path | None:
    # The executables lie beside the extension; the Python files of an editable install are elsewhere.
    extension = importlib.util.find_spec("arraybridge._core")
    if extension is None or extension.origin is None:
        return None
    file = Path(extension.origin).with_name("bin") / name
    return file if file.is_file() else None


def _become(name: str) -> None:
    # path() would find, on PATH, the very script that called this.
    beside = beside_package(name)
    if beside is None:
        sys.exit(f"{name}: this installation of arraybridge has no executables; install the wheel")
    os.execv(beside, [name, *sys.argv[1:]])


def arraybridged() -> None:
    _become("arraybridged")


def arraybridgectl() -> None:
    os.environ["ARRAYBRIDGE_PYTHON"] = sys.executable  # its doctor examines this Python, its load runs in it
    _become("arraybridgectl")
