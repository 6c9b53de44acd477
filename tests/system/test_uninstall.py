# SPDX-License-Identifier: Apache-2.0
"""The machine's last test: apt takes the packages away again."""

from __future__ import annotations

from machine import Machine
from service import SOCKETS, UNIT, Service


def test_a_purge_stops_daemon_and_sockets_and_leaves_no_unit(installed: Machine) -> None:
    service = Service(installed)
    service.listen()
    service.tool("ping")
    running = service.pid
    installed.does("systemctl", "enable", UNIT)
    installed.does("apt-get", "purge", "-qy", "arraybridged")
    assert not installed.path(f"/proc/{running}").exists()
    for unit in (UNIT, *SOCKETS):
        assert installed.run("systemctl", "is-active", unit).stdout.strip() == "inactive", unit
    assert installed.does("find", "/usr", "/etc", "-name", "*arraybridged*") == ""
