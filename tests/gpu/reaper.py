# SPDX-License-Identifier: Apache-2.0
"""Runs a command, and ends with it every process that it started: ``reaper.py SECONDS|none COMMAND...``

It is a process of its own, so that all its descendants are the command's. One that leaves its session, its parent and its
environment stays a descendant: Linux gives orphans to the nearest ancestor that asked for them, which is this process.
Exits with the command's status, with 128 and its signal, or with 124 after so many seconds. Ends everything, too, when it
is told to end, or when the process that started it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

DYING_S = 10  # how long a killed process may take to end: its driver first waits for the GPU
TOOK_TOO_LONG = 124
SET_PARENT_DEATH_SIGNAL = 1
SET_CHILD_SUBREAPER = 36


def command(limit: float | None, words: list[str]) -> list[str]:
    """`words` under a reaper. It imports nothing of the machine's Python."""
    return [sys.executable, "-I", "-S", __file__, "none" if limit is None else str(limit), *words]


def descendants(of: int) -> list[int]:
    """All processes below this one, also those that have ended and are not waited for."""
    children = defaultdict(list)
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                after_name = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                children[int(after_name[1])].append(int(folder.name))
    found = []
    above = [of]
    while above:
        below = children[above.pop()]
        found += below
        above += below
    return found


def end_all() -> None:
    """Kills all descendants until none is left; one that a driver does not let go is left behind."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ends = time.monotonic() + DYING_S
    while (alive := descendants(os.getpid())) and time.monotonic() < ends:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        time.sleep(0.005)


def main() -> int:
    limit = None if sys.argv[1] == "none" else float(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    libc = ctypes.CDLL(None)
    libc.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    try:
        status = subprocess.Popen(sys.argv[2:], close_fds=False).wait(limit)
    except subprocess.TimeoutExpired:
        return TOOK_TOO_LONG
    finally:
        end_all()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
