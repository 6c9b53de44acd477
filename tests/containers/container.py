# SPDX-License-Identifier: Apache-2.0
"""A container without an engine: bubblewrap, with a separate namespace of every kind and one shared directory."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build/dev"))
DAEMON = Path(os.environ.get("ARRAYBRIDGE_DAEMON", BUILD / "daemon/arraybridged"))
ADDRESS = "/run/arraybridge"
PATIENCE_S = 120.0  # a watchdog against hangs, not a limit on speed


class Container:
    """A process in its own pid, ipc, net, uts and mount namespaces; it shares only the sockets' directory with other containers.

    The host's file system, read-only, serves as the image. `/tmp`, `/run` and `/dev/shm` are the container's own, except for
    this repository if it is in one of them.
    """

    def __init__(self, sockets: Path, *command: object, environment: dict[str, str] | None = None, pids: bool = True) -> None:
        """pids: it has its own pid namespace; otherwise it shares the host's."""
        isolation = ["--unshare-ipc", "--unshare-net", "--unshare-uts", "--die-with-parent", "--new-session"]
        isolation += ["--unshare-pid"] if pids else []
        files = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp", "--tmpfs", "/run"]
        for folder in (ROOT, BUILD.resolve()):  # wherever they are: the container has another /tmp
            files += ["--ro-bind", str(folder), str(folder)]
        shared = ["--bind", str(sockets), ADDRESS, "--chdir", "/"]
        known = {key: value for key, value in os.environ.items() if key not in ("ARRAYBRIDGE_ADDRESS", "XDG_RUNTIME_DIR")}
        self.process = subprocess.Popen(
            ["bwrap", *isolation, *files, *shared, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**known, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **(environment or {})},
        )

    def line(self, text: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"it has ended: {self.process.poll()}"
        return answer.rstrip("\n")

    def ask(self, *words: object) -> Any:
        answer = json.loads(self.line(" ".join(map(str, words))))
        assert not isinstance(answer, dict) or "error" not in answer, answer["error"]
        return answer

    def pid(self) -> int:
        """The program's process id on the host: the last process in bubblewrap's chain of children."""
        pid = self.process.pid
        while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            (pid,) = map(int, children)
        return pid

    def kill(self) -> None:
        """Kills the container's first process, as an engine does, and with it all others."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate(timeout=PATIENCE_S)


class Broker(Container):
    """arraybridged in its own container."""

    def __init__(self, sockets: Path, *flags: object, environment: dict[str, str] | None = None, pids: bool = True) -> None:
        command = [DAEMON, "--directory", ADDRESS, "--ready-fd", "1", "--host-capacity", "256MiB", "--cache", "0", *flags]
        super().__init__(sockets, *command, environment=environment, pids=pids)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def end(self) -> None:
        self.process.terminate()
        super().end()


class Stage(Container):
    """A process with one framework."""

    def __init__(self, sockets: Path, framework: str) -> None:
        package = os.environ.get("PYTHONPATH", "")
        command = [sys.executable, "-X", "faulthandler", Path(__file__).with_name("stage.py"), ADDRESS, framework]
        super().__init__(sockets, *command, environment={"PYTHONPATH": package})
