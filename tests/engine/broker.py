# SPDX-License-Identifier: Apache-2.0
"""A broker in a container of the image."""

from __future__ import annotations

import json
from pathlib import Path

from engine import Engine
from machine import eventually

ADDRESS = "/run/arraybridge"


class Broker:
    """`sockets` is the directory of the host that other containers mount, too."""

    def __init__(self, engine: Engine, image: str, sockets: Path, *flags: str) -> None:
        self.engine = engine
        self.image = image
        self.mount = f"--volume={sockets}:{ADDRESS}"
        words = engine.run(image, flags=["--detach", self.mount, "--memory=512m", *flags])[len(engine.words) :]
        self.container = engine.do(*words).strip()
        eventually("the broker serves", lambda: self.execute("arraybridgectl", "-H", ADDRESS, "ping") == "ok\n", self.log)

    def execute(self, *words: object) -> str:
        """The output of a program in its container."""
        return self.engine.try_("exec", self.container, *words).stdout

    def log(self) -> str:
        told = self.engine.try_("logs", self.container)
        return told.stdout + told.stderr

    def tool(self, *words: object, flags: tuple[str, ...] = ()) -> str:
        """The output of arraybridgectl in a container of its own."""
        command = self.engine.run(self.image, "-H", ADDRESS, *words, flags=["--rm", self.mount, "--entrypoint=arraybridgectl", *flags])
        return self.engine.do(*command[len(self.engine.words) :])

    def life(self) -> int:
        """The number of daemons that this broker has had."""
        told = self.execute("arraybridgectl", "-H", ADDRESS, "-o", "json", "info")
        return int(json.loads(told)["life"]["number"]) if told else 0

    def kill_daemon(self) -> None:
        """The keeper, the first process in the container, starts the next one."""
        number = self.life()
        daemon, *_ = self.execute("cat", "/proc/1/task/1/children").split()
        self.engine.do("exec", self.container, "sh", "-c", f"kill -9 {daemon}")
        eventually("the next daemon serves", lambda: self.life() == number + 1, self.log)

    def kill(self) -> None:
        """The container as a whole."""
        self.engine.do("kill", self.container)
        self.end()

    def end(self) -> None:
        self.engine.try_("rm", "--force", self.container)
