"""Real users of one daemon: its directory open to all, and processes of other user ids that do what they are told."""

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
# What a user's process needs of this tree, readable whatever the checkout's own rights are.
NEEDED = ("foreign_client.py", "other_user.py")


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run processes of other users")


class Place:
    """A directory that everybody may enter: the daemon's, and beside it what the users' processes run."""

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
    """A process of another user. What it is told runs in it; what that comes to comes back."""

    def __init__(self, place: Place, uid: int, groups: Sequence[int] = ()) -> None:
        self.uid = uid
        also = ",".join(map(str, groups))
        # Not by Popen's own arguments: for those it forks, and gRPC's threads in this process do not always outlive that.
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
        """What this method of other_user.Actor comes to there."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(pickle.dumps((method, arguments, keywords)).hex() + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the process of user {self.uid} has gone"
        return pickle.loads(bytes.fromhex(line))  # it is ours

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.communicate()
