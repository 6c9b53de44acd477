# SPDX-License-Identifier: Apache-2.0
"""A booted Debian: a real systemd as the first process of a container of systemd-nspawn, with a network of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

PATIENCE_S = 120.0  # a watchdog against hangs, not a limit on speed
# Dies with the process that started it, and with it every process of the machine, which nspawn's death alone would leave.
ALONE = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--mount", "--mount-proc", "--fork", "--kill-child"]
# overlay: files that the machine changes are in memory, and the root file system stays as it is.
NSPAWN = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--volatile=overlay", "--private-network", "--link-journal=no"]
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def eventually(what: str, test: Callable[[], Any], seen: Callable[[], str] = str) -> Any:
    """Repeats the query until the answer is true; the error after PATIENCE_S shows what `seen` returns."""
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := test()):
        assert time.monotonic() < deadline, f"never happened: {what}; {seen()}"
        time.sleep(0.05)
    return answer


class Machine:
    """Boots when it is made. The folders `shown` of the host are at the same place in it, read-only."""

    def __init__(self, root: Path, folder: Path, *shown: Path) -> None:
        self.console = folder / "console"
        self.groups = own_control_groups()
        for group in self.groups:
            for left in group.parent.glob("arraybridge-test-*"):  # by a test that was killed; others' have processes, and stay
                remove_tree(left)
            group.mkdir()
        enter = "".join(f'echo $$ >"{group}/cgroup.procs"; ' for group in self.groups)
        words = [*ALONE, *NSPAWN, f"--directory={root}", *(f"--bind-ro={path}" for path in shown), "--boot", "--console=pipe"]
        with self.console.open("wb") as console:
            self.outer = subprocess.Popen(
                ["sh", "-ec", f'{enter}exec "$@"', "sh", *words], stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        self.pid = 0

    def boots(self) -> bool:
        """False: systemd ends here, and `console` says why."""
        eventually("systemd runs or has ended", lambda: self.outer.poll() is not None or self._find(), self.told)
        if self.outer.poll() is not None:
            return False
        eventually("its bus answers", lambda: self.outer.poll() is not None or self.run("systemctl", "show-environment").returncode == 0)
        return self.outer.poll() is None and self.run("systemctl", "is-system-running", "--wait").stdout.strip() in ("running", "degraded")

    def _find(self) -> bool:
        """systemd is the child of nspawn, which is the child of unshare."""
        for nspawn in children(self.outer.pid):
            for pid in children(nspawn):
                with contextlib.suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                        self.pid = pid
        return self.pid != 0

    def told(self) -> str:
        return self.console.read_text(errors="replace")[-3000:]

    def command(self, *words: object, user: str = "root") -> list[str]:
        """The words of the host that run a program in the machine."""
        enter = [
            "nsenter",
            f"--target={self.pid}",
            "--all",
            "env",
            "-i",
            f"PATH={PATH}",
            "LC_ALL=C.UTF-8",
            "DEBIAN_FRONTEND=noninteractive",
        ]
        become = [] if user == "root" else ["runuser", "-u", user, "--"]
        return [*enter, *become, *map(str, words)]

    def run(self, *words: object, user: str = "root") -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*words, user=user), stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def does(self, *words: object, user: str = "root") -> str:
        """The output of a program that must succeed."""
        done = self.run(*words, user=user)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def path(self, inside: str) -> Path:
        """The place of a file of the machine on the host."""
        return Path(f"/proc/{self.pid}/root{inside}")

    def end(self) -> None:
        """Turns it off, or kills it; nothing of it stays."""
        with contextlib.suppress(ProcessLookupError):
            if self.pid:
                os.kill(self.pid, signal.SIGRTMIN + 4)  # poweroff
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.outer.wait(30 if self.pid else 0)
        self.outer.kill()
        self.outer.wait()
        for group in self.groups:
            eventually(f"no process is in {group}", partial(remove_tree, group))


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def own_control_groups() -> list[Path]:
    """A place in every hierarchy that systemd uses: in a common one, two machines would end each other's processes."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        for _, place, kind, options, *_ in mounts:
            if (controllers, kind) == ("", "cgroup2") or (controllers == "name=systemd" and "name=systemd" in options.split(",")):
                found.append(Path(place) / own.lstrip("/") / f"arraybridge-test-{os.getpid()}")
                break
    return found


def remove_tree(group: Path) -> bool:
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
    except OSError:
        return False
    return True
