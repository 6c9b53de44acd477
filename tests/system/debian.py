# SPDX-License-Identifier: Apache-2.0
"""Root file systems of Debian, which mmdebstrap makes once and the cache keeps."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arraybridge"  # as in deploy/lib.sh
# The host's own sources, so that a mirror that it uses is used here.
SOURCES = [path for path in ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list") if Path(path).exists()][:1]


def needs(*programs: str) -> None:
    """Skips unless root runs these programs."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if missing := [name for name in programs if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")


def root(packages: Sequence[str], *flags: str) -> Path:
    """A Debian 12, minimal if no flags say otherwise, with these packages. Nothing may change it.

    Skips if it is not there and cannot be fetched.
    """
    wanted = [f"--include={','.join(packages)}"] if packages else []
    command = ["mmdebstrap", *(flags or ["--variant=minbase"]), *wanted, "bookworm"]
    kept = CACHE / "roots" / hashlib.sha256(" ".join([*command, *SOURCES]).encode()).hexdigest()[:12]
    with locked(kept.with_suffix(".lock")):
        if not kept.exists():
            needs("mmdebstrap")
            new = kept.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            made = subprocess.run([*command, str(new), *SOURCES], capture_output=True, text=True)
            if made.returncode != 0:
                pytest.skip(f"mmdebstrap cannot fetch Debian here: {' '.join(made.stderr.splitlines()[-3:])}")
            new.rename(kept)
    return kept


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """While no other process has this lock; the function of the same name in deploy/lib.sh takes it, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
