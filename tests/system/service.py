# SPDX-License-Identifier: Apache-2.0
"""The packaged service in a booted machine, administered as its guide says."""

from __future__ import annotations

import json
from typing import Any

from machine import Machine, eventually

UNIT = "arraybridged.service"
SOCKETS = ("arraybridged.socket", "arraybridged-lifeline.socket", "arraybridged-admin.socket", "arraybridged-http.socket")
DROP_IN = "/run/systemd/system/arraybridged.service.d/test.conf"
CONFIG = "/etc/arraybridge/arraybridged.toml"


class Service:
    """systemd's view of the daemon, and the tool's."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def listen(self) -> None:
        self.machine.does("systemctl", "enable", "--now", *SOCKETS)

    def forget(self) -> None:
        """Ends it, and drops what a test has configured."""
        self.machine.does("systemctl", "disable", "--now", *SOCKETS, UNIT)
        for path in (DROP_IN, CONFIG):
            self.machine.path(path).unlink(missing_ok=True)
        self.machine.does("systemctl", "daemon-reload")
        self.machine.run("systemctl", "reset-failed", UNIT)

    def configure(self, text: str) -> None:
        path = self.machine.path(CONFIG)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def amend(self, section: str) -> None:
        """A drop-in of the unit."""
        path = self.machine.path(DROP_IN)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(section)
        self.machine.does("systemctl", "daemon-reload")

    def shows(self, name: str) -> str:
        """A property of the unit."""
        return self.machine.does("systemctl", "show", "--value", f"--property={name}", UNIT).strip()

    @property
    def pid(self) -> int:
        """The daemon's, in the machine; 0: none runs."""
        return int(self.shows("MainPID"))

    def next_life(self, last: int) -> int:
        """The process id of a daemon that has taken over from `last`."""

        def serves() -> bool:
            return self.shows("ActiveState") == "active" and self.pid not in (0, last)

        eventually("the next daemon serves", serves, self.log)
        return self.pid

    def tool(self, *words: object, user: str = "ann") -> str:
        return self.machine.does("arraybridgectl", *words, user=user)

    def info(self) -> Any:
        return json.loads(self.tool("-o", "json", "info"))

    def stored(self) -> int:
        """Descriptors that systemd holds for the daemon."""
        return int(self.shows("NFileDescriptorStore"))

    def log(self) -> str:
        return self.machine.does("journalctl", "--no-pager", "--lines=60", "--unit", UNIT)
