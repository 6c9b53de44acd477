# SPDX-License-Identifier: Apache-2.0
"""Real users of one daemon: its directory is open to all, and processes of other user ids execute commands."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from foreign_client import Daemon, generate_into

PROGRAM = Path(__file__).with_name("other_user.py")
# The files of this tree that a user's process needs, readable independently of the checkout's own modes.
NEEDED = ("foreign_client.py", "other_user.py")


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run processes of other users")


class Place:
    """A directory that all users may enter: the daemon's directory, and the programs of the users' processes."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="arraybridge-users-"))
        self.path.chmod(0o755)
        self.running: Daemon | None = None
        for name in NEEDED:
            shutil.copy(PROGRAM.with_name(name), self.path)
        generate_into(self.path / "stubs")
        for path in [*(self.path / "stubs").rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)

    def configure(self, config: str) -> None:
        (self.path / "arraybridged.toml").write_text(config)

    def daemon(self, config: str = "", *flags: str, **limits: str) -> Daemon:
        self.configure(config)
        daemon = self.running = Daemon(self.path / "run", "--config", str(self.path / "arraybridged.toml"), *flags, **limits)
        self.open(daemon)
        return daemon

    @staticmethod
    def open(daemon: Daemon) -> None:
        daemon.directory.chmod(0o755)
        for door in ("lifeline.sock", "broker.sock"):
            (daemon.directory / door).chmod(0o666)

    def remove(self) -> None:
        if self.running is not None:
            assert self.running.terminate() == 0
        shutil.rmtree(self.path)


class User:
    """A process of another user. It executes commands and returns their results."""

    def __init__(self, place: Place, uid: int, groups: Sequence[int] = ()) -> None:
        self.uid = uid
        also = ",".join(map(str, groups))
        # Not by Popen's own arguments: for those it forks, which gRPC's threads in this process do not always survive.
        become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", f"--groups={also}" if also else "--clear-groups"]
        self.process = subprocess.Popen(
            [*become, sys.executable, str(place.path / "other_user.py"), str(place.path / "run")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ARRAYBRIDGE_FOREIGN_STUBS": str(place.path / "stubs"), "HOME": "/nonexistent"},
            cwd="/",
        )
        assert self.act("uid") == uid

    def act(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """The result of this method of other_user.Actor there."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(pickle.dumps((method, arguments, keywords)).hex() + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the process of user {self.uid} has ended"
        return pickle.loads(bytes.fromhex(line))  # it is our own process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.communicate()
