# SPDX-License-Identifier: Apache-2.0
"""Programs of aarch64 on this machine, by qemu's emulation of one process."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ARRAYBRIDGE_BUILD_AARCH64", ROOT / "build" / "aarch64"))
LIBRARIES = ROOT / "build" / "aarch64-root"
NUMPY = ROOT / "build" / "aarch64-python"
QEMU = "qemu-aarch64-static"
PAGES = (4096, 65536)
# qemu ignores the advice that populates pages and that makes huge ones.
VARIABLES = {"ARRAYBRIDGED_MEMORY__HOST__HUGEPAGES": "never"}


def missing(*programs: str) -> str:
    """Why they cannot run here, or nothing."""
    if shutil.which(QEMU) is None:
        return f"{QEMU} is not installed: deploy/setup aarch64"
    lacking = [name for name in programs if not (BUILD / name).exists()]
    return f"not built: {' '.join(lacking)} (tests/run --only aarch64)" if lacking else ""


def command(program: str | Path, page: int, *arguments: str) -> list[str]:
    """A program of the build, or of a path. With pages of 64 KiB qemu 7.2 maps the loader's data to the next 4 KiB only, and the loader believes that it has the whole
    page: a thread_local of the first thread that lies there ends in SIGSEGV. With more of them the loader maps memory for them.
    """
    loader = ["-E", "GLIBC_TUNABLES=glibc.rtld.optional_static_tls=131072"]
    return [QEMU, *loader, "-p", str(page), "-L", str(LIBRARIES), str(BUILD / program), *arguments]


def python(site: Path, page: int, *arguments: str) -> list[str]:
    """Debian's Python with the packages of this folder, and NumPy."""
    qemu, *words = command(LIBRARIES / "usr/bin/python3.11", page, *arguments)
    variables = {"PYTHONHOME": str(LIBRARIES / "usr"), "PYTHONPATH": f"{site}:{NUMPY}", "PYTHONDONTWRITEBYTECODE": "1"}
    return [qemu, *(word for name, value in variables.items() for word in ("-E", f"{name}={value}")), *words]


@contextmanager
def daemon(directory: Path, page: int, program: str | Path = "daemon/arraybridged") -> Iterator[None]:
    """A broker of aarch64 that serves in this directory."""
    ready, tell = os.pipe()
    words = command(program, page, "--directory", str(directory), "--ready-fd", str(tell), "--log-level", "warn")
    broker = subprocess.Popen(words, pass_fds=[tell], env={**os.environ, **VARIABLES}, stdin=subprocess.DEVNULL)
    os.close(tell)
    try:
        with os.fdopen(ready, "rb") as pipe:
            assert pipe.readline() == b"ready\n", "the daemon did not become ready"
        yield
    finally:
        broker.terminate()
        ended = broker.wait()
    assert ended == 0
