"""The executables that the package brings, and their console entry points."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def path(name: str) -> str:
    """Where the executable is: beside the package, else (the daemon) $ARRAYBRIDGE_DAEMON, else on PATH.

    Raises:
        FileNotFoundError: nowhere.
    """
    beside = Path(__file__).with_name("bin") / name
    if beside.is_file():
        return str(beside)
    chosen = os.environ.get("ARRAYBRIDGE_DAEMON") if name == "arraybridged" else None
    found = chosen or shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"no executable {name}: not in the package, not in $ARRAYBRIDGE_DAEMON, not on PATH")
    return found


def _become(name: str) -> None:
    # Not path(): on PATH stands the very script that called this.
    beside = Path(__file__).with_name("bin") / name
    if not beside.is_file():
        sys.exit(f"{name}: this installation of arraybridge has no executables")
    os.execv(beside, [name, *sys.argv[1:]])


def arraybridged() -> None:
    _become("arraybridged")


def arraybridgectl() -> None:
    _become("arraybridgectl")
