# SPDX-License-Identifier: Apache-2.0
"""The Debian packages in a root without any other file of ours: dpkg installs them, the unit's command serves, purge removes all."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from bare_root import BareRoot

NEEDED = ("dpkg-deb", "bwrap", "systemd-sysusers", "systemd-tmpfiles")
LACKING = [name for name in NEEDED if shutil.which(name) is None]
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run maintainer scripts in a bare root"),
    pytest.mark.skipif(bool(LACKING), reason=f"not installed: {', '.join(LACKING)}"),
]


@pytest.fixture
def root(packages: dict[str, Path], tmp_path: Path) -> BareRoot:
    bare = BareRoot(tmp_path / "bare")
    bare.dpkg("--install", *packages.values())
    return bare


def rights(path: Path) -> tuple[str, int, int]:
    seen = path.stat()
    return stat.filemode(seen.st_mode), seen.st_uid, seen.st_gid


def test_dpkg_makes_the_user_the_groups_and_the_directory(root: BareRoot, packages: dict[str, Path]) -> None:
    query = ["dpkg-query", f"--admindir={root.path}/var/lib/dpkg", "-W", "-f=${Status}\n", *packages]
    states = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    assert states == ["install ok installed"] * len(packages)
    _, uid, gid, *_, shell = root.accounts("passwd")["arraybridge"]
    assert 0 < int(uid) < 1000 and shell.endswith("nologin")
    assert root.accounts("group")["arraybridge"][1] == gid
    assert root.accounts("group")["arraybridge-admin"][1] not in ("0", gid)
    assert rights(root.path / "run/arraybridge") == ("drwxr-x--x", int(uid), int(gid))


def test_the_packaged_unit_serves_as_its_user(root: BareRoot) -> None:
    _, uid, gid, *_ = root.accounts("passwd")["arraybridge"]
    with root.service("arraybridged.service") as service:
        assert service.identity() == (int(uid), int(gid))
        assert service.command_line() == ["/usr/bin/arraybridged", "--directory", "/run/arraybridge"]
        for door in ("lifeline.sock", "broker.sock"):
            assert rights(root.path / "run/arraybridge" / door) == ("srw-rw----", int(uid), int(gid))
        ping = root.run_as("arraybridge:arraybridge", "/usr/bin/arraybridgectl", "ping")
        assert (ping.returncode, ping.stdout) == (0, "ok\n"), ping.stderr
        stranger = root.run_as("65534:65534", "/usr/bin/arraybridgectl", "-H", "/run/arraybridge", "ping")
        assert stranger.returncode != 0 and "ok" not in stranger.stdout
        assert service.fetch("http://127.0.0.1:9464/readyz") == "ready\n"


def test_purge_leaves_nothing(root: BareRoot, packages: dict[str, Path]) -> None:
    root.dpkg("--purge", *packages)
    left = [path for path in root.path.rglob("*") if "arraybridge" in path.name and "/run/" not in str(path)]
    assert left == []
