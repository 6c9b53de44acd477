# SPDX-License-Identifier: Apache-2.0
"""A booted machine with the Debian packages, for all tests; a service that serves, for each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import debian
import pytest
from harness import CLIENT, Client
from machine import Machine
from packages import packages
from service import Service

__all__ = ["packages"]

# systemd, and what the packages depend on: apt installs them without a network.
OF_DEBIAN = ("systemd", "systemd-sysv", "dbus", "libstdc++6", "zlib1g")


@pytest.fixture(scope="session")
def root() -> Path:
    """The machine's file system."""
    debian.needs("systemd-nspawn", "nsenter", "setpriv")
    return debian.root(OF_DEBIAN)


@pytest.fixture(scope="session")
def machine(root: Path, packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("machine")
    shown = folder / "packages"
    shown.mkdir()
    for path in packages.values():
        shutil.copy(path, shown)
    seen = [shown, *([CLIENT.parent] if CLIENT.exists() else [])]
    try:
        booted = Machine(root, folder, *seen)
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        if not booted.boots():
            pytest.skip(f"systemd does not boot in a container here: {booted.told().splitlines()[-1:]}")
        yield booted
    finally:
        booted.end()


@pytest.fixture(scope="session")
def installed(machine: Machine, packages: dict[str, Path]) -> Machine:
    """The machine with daemon and tool, two members of their group, an administrator and an outsider."""
    shown = machine.console.parent / "packages"
    machine.does("apt-get", "install", "-qy", *(shown / packages[name].name for name in ("arraybridged", "arraybridge-tools")))
    for user, groups in {"ann": "arraybridge", "bob": "arraybridge", "eve": "nogroup", "ada": "arraybridge-admin"}.items():
        machine.does("useradd", "--create-home", "--groups", groups, user)
    return machine


@pytest.fixture
def service(installed: Machine) -> Iterator[Service]:
    """The sockets listen, as the guide says, and no daemon runs yet."""
    each = Service(installed)
    each.listen()
    yield each
    each.forget()


@pytest.fixture
def client(service: Service) -> Iterator[Callable[..., Client]]:
    """Starts a client in the machine that holds arrays."""
    if not CLIENT.exists():
        pytest.skip("fault_client is not built")
    running: list[Client] = []

    def start(user: str = "ann") -> Client:
        running.append(Client(Path("/run/arraybridge"), prefix=service.machine.command(user=user)))
        return running[-1]

    yield start
    for each in running:
        each.kill()
