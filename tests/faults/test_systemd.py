# SPDX-License-Identifier: Apache-2.0
"""A real systemd keeps the daemon's memory and connections: the first process of namespaces of its own, with our units only."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BUILD, DAEMON, ROOT, Client, eventually

SYSTEMD = Path("/lib/systemd/systemd")
CTL = BUILD / "client/ctl/arraybridgectl"
UNITS = ROOT / "deploy/systemd/user"
BOOT = """
mount --make-rprivate /
mkdir -p {folder}/run
mount --bind {folder}/run /run
mount -t proc proc /proc
export container=test SYSTEMD_UNIT_PATH={folder}/units SYSTEMD_GENERATOR_PATH={folder}/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH={folder}/none
exec {systemd} --system --log-target=console --show-status=no
"""
TARGET = "[Unit]\nDefaultDependencies=no\nWants=arraybridged.socket arraybridged-lifeline.socket\n"
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of its own need root"),
    pytest.mark.skipif(not SYSTEMD.exists() or shutil.which("nsenter") is None, reason="systemd or nsenter is not installed"),
]


class Systemd:
    """systemd 252 or newer with the shipped user units. Its /run is `folder`/run outside."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.directory = folder / "run/arraybridge"
        units = folder / "units"
        units.mkdir()
        for path in UNITS.iterdir():
            # There are no other units to depend on.
            text = path.read_text().replace("/usr/bin/arraybridged", str(DAEMON)).replace("ConditionUser=!root\n", "")
            (units / path.name).write_text(text.replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n"))
        (units / "default.target").write_text(TARGET)
        with self.log.open("wb") as log:
            boot = BOOT.format(folder=folder, systemd=SYSTEMD)
            self.process = subprocess.Popen(
                ["unshare", "--pid", "--mount", "--cgroup", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-ec", boot],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def starts(self) -> bool:
        """False: this machine lets no systemd run here."""
        eventually("it starts or ends", lambda: self.has_started() or self.has_ended(), self.log_text)
        return not self.has_ended()

    def has_started(self) -> bool:
        return (self.directory / "lifeline.sock").exists()

    def has_ended(self) -> bool:
        return self.process.poll() is not None or "Freezing execution" in self.log_text()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        """Of systemd, outside."""
        (child,) = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(child)

    def daemon(self) -> int:
        """0: none runs."""
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{child}/exe").resolve() == DAEMON.resolve():
                    return int(child)
        return 0

    def next_daemon(self, last: int) -> int:
        return int(eventually("the next daemon", lambda: self.daemon() not in (0, last) and self.daemon()))

    def systemctl(self, *words: str) -> str:
        command = ["nsenter", "--target", str(self.pid), "--pid", "--mount", "--cgroup", "systemctl", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def stored(self) -> int:
        """Descriptors in its store."""
        return int(self.systemctl("show", "--property=NFileDescriptorStore", "--value", "arraybridged.service"))

    def end(self) -> None:
        with contextlib.suppress(ValueError):
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    running = Systemd(tmp_path)
    try:
        if not running.starts():
            pytest.skip(f"systemd does not start here: {running.log_text().splitlines()[-1:]}")
        yield running
    finally:
        running.end()


def test_a_real_service_manager_keeps_everything_until_it_is_told_to_stop(systemd: Systemd) -> None:
    """Kills, an upgrade and a restart are not noticed; `systemctl stop` frees the memory."""
    writer, reader, waiter = (Client(systemd.directory) for _ in range(3))
    writer.ask("put a 65536 1")
    reader.ask("get a 1")
    waiter.ask("stats")
    waiter.tell("get coming 5 wait 60000")
    ends = [signal.SIGKILL, signal.SIGKILL, signal.SIGUSR2, signal.SIGSEGV, "restart"]
    for number, end in enumerate(ends):
        last = systemd.daemon()
        if isinstance(end, str):
            systemd.systemctl(end, "arraybridged.service")
        else:
            os.kill(last, end)
        systemd.next_daemon(last)
        reader.ask("check")
        reader.ask("get a 1")
        writer.ask(f"put b 4096 {number} replace")
        reader.ask(f"get b {number}")
    assert systemd.stored() > 5
    writer.ask("put coming 4096 5")
    waiter.answer()
    life = json.loads(
        subprocess.run([CTL, "-H", systemd.directory, "-o", "json", "info"], capture_output=True, text=True, check=True).stdout
    )["life"]
    assert (life["number"], life["holder"]) == (str(len(ends) + 1), "HOLDER_SERVICE_MANAGER")
    systemd.systemctl("stop", "arraybridged.service")
    assert systemd.stored() == 0
    for client in (writer, reader, waiter):
        client.kill()
