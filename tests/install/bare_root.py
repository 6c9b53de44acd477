# SPDX-License-Identifier: Apache-2.0
"""A root file system with the parts of Debian that our packages and service need."""

from __future__ import annotations

import configparser
import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from test_install import BUILD

PATIENCE_S = 120.0  # a watchdog against hangs, not a limit on speed
DEPENDED_ON = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g")
# The programs that dpkg checks for before it starts, those that process sysusers.d and tmpfiles.d, and coreutils' for postrm.
TOOLS = ("ldconfig", "start-stop-daemon", "update-rc.d", "systemd-sysusers", "systemd-tmpfiles", "rm")
INSTALLED = """Package: {0}
Status: install ok installed
Architecture: {2}
Version: {1}
Maintainer: nobody <nobody@localhost>
Description: of the host

"""


class BareRoot:
    """A shell, systemd's tools for users and directories, the packages' dependencies, and dpkg's records that they are installed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        for usual in ("bin", "lib", "lib64", "sbin"):
            (path / "usr" / usual).mkdir(parents=True)
            (path / usual).symlink_to(f"usr/{usual}")
        for folder in ("dev", "etc", "proc", "run", "tmp"):
            (path / folder).mkdir()
        (path / "tmp").chmod(0o1777)
        tools = [found for name in TOOLS if (found := shutil.which(name, path="/sbin:/usr/sbin:/bin:/usr/bin"))]
        self._lay_in("/bin/sh", *tools)
        needed = subprocess.run(["ldd", BUILD / "daemon/of_debian/arraybridged", "/bin/sh", *tools], capture_output=True, text=True)
        self._lay_in(*{word for word in needed.stdout.split() if word.startswith("/") and not word.endswith(":")})
        self._say_installed()

    def _lay_in(self, *files: str) -> None:
        for name in files:
            there = self.path / name.lstrip("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(name).resolve(), there)

    def _say_installed(self) -> None:
        database = self.path / "var/lib/dpkg"
        for folder in ("info", "updates", "triggers"):
            (database / folder).mkdir(parents=True)
        status = []
        machine = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
        for package in DEPENDED_ON:
            query = ["dpkg-query", "-W", "-f=${Version}", package]
            version = subprocess.run(query, capture_output=True, text=True, check=True).stdout
            status.append(INSTALLED.format(package, version, machine))
            (database / "info" / f"{package}.list").touch()
        (database / "status").write_text("".join(status))
        (database / "available").touch()

    def apart(self, *command: object) -> list[str]:
        """The command in this root, with /proc, /dev and its own network namespace, so that our ports are free. Root stays root."""
        apart = ["bwrap", "--cap-add", "ALL", "--unshare-net", "--die-with-parent", "--dev-bind", "/", "/"]
        return [*apart, "--proc", f"{self.path}/proc", "--dev", f"{self.path}/dev", *map(str, command)]

    def dpkg(self, *arguments: object) -> None:
        command = self.apart("dpkg", f"--root={self.path}", f"--log={self.path}/dpkg.log", *arguments)
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def run_as(self, user: str, *command: object) -> subprocess.CompletedProcess[str]:
        inside = self.apart("chroot", f"--userspec={user}", self.path, *command)
        return subprocess.run(inside, capture_output=True, text=True)

    def accounts(self, file: str) -> dict[str, list[str]]:
        lines = (self.path / "etc" / file).read_text().splitlines() if (self.path / "etc" / file).exists() else []
        return {fields[0]: fields[1:] for fields in (line.split(":") for line in lines)}

    @contextlib.contextmanager
    def service(self, unit: str) -> Iterator[Service]:
        """The unit's command, run as its user with its umask, after it has reported that it is ready."""
        section = _section(self.path / "usr/lib/systemd/system" / unit)
        notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notified.settimeout(PATIENCE_S)
        notified.bind(str(self.path / "run/notify"))
        (self.path / "run/notify").chmod(0o666)
        inside = ["chroot", f"--userspec={section['User']}:{section['Group']}", self.path, *shlex.split(section["ExecStart"])]
        environment = {"PATH": os.environ["PATH"], "NOTIFY_SOCKET": "/run/notify"}
        umask = int(section["UMask"], 8)
        process = subprocess.Popen(self.apart(*inside), env=environment, umask=umask, stderr=subprocess.PIPE, text=True)
        try:
            while "READY=1" not in notified.recv(4096).decode().splitlines():
                assert process.poll() is None
            yield Service(process)
        except TimeoutError:
            process.kill()
            raise AssertionError(process.communicate()) from None
        finally:
            notified.close()
            if process.poll() is None:
                os.kill(Service(process).pid, signal.SIGTERM)
            _, told = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, told


class Service:
    """The daemon's process in its namespaces."""

    def __init__(self, outer: subprocess.Popen[str]) -> None:
        self.pid = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])

    def identity(self) -> tuple[int, int]:
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{self.pid}/status").read_text().splitlines())
        return int(status["Uid"].split()[0]), int(status["Gid"].split()[0])

    def command_line(self) -> list[str]:
        return Path(f"/proc/{self.pid}/cmdline").read_text().rstrip("\0").split("\0")

    def fetch(self, url: str) -> str:
        script = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())"
        command = ["nsenter", f"--target={self.pid}", "--net", "/usr/bin/python3", "-c", script, url]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _section(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)
    return parser["Service"]
