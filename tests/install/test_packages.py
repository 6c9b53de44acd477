# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: built, checked by lintian, unpacked, and started from the unpacked tree."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from test_install import BUILD

pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")


@pytest.fixture(scope="module")
def root(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    bare = tmp_path_factory.mktemp("root")
    for package in packages.values():
        subprocess.run(["dpkg-deb", "-x", str(package), str(bare)], check=True)
    return bare


def field(package: Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", str(package), name], capture_output=True, text=True, check=True).stdout.strip()


def test_there_are_four_packages_that_need_only_the_runtime_and_debians_zlib(packages: dict[str, Path]) -> None:
    assert set(packages) == {"arraybridged", "arraybridge-tools", "libarraybridge1", "libarraybridge-dev"}
    library = {each.split()[0] for each in field(packages["libarraybridge1"], "Depends").split(",")}
    assert library == {"libc6", "libgcc-s1", "libstdc++6"}
    assert field(packages["libarraybridge-dev"], "Depends").startswith("libarraybridge1 (= ")
    for program in ("arraybridged", "arraybridge-tools"):
        needed = {each.split()[0] for each in field(packages[program], "Depends").split(",")}
        assert needed == {"libc6", "libgcc-s1", "zlib1g"}
    assert field(packages["arraybridged"], "Recommends").startswith("arraybridge-tools (= ")


def test_the_tool_is_available_without_the_daemon(packages: dict[str, Path], tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-x", str(packages["arraybridge-tools"]), str(tmp_path)], check=True)
    assert {path.name for path in (tmp_path / "usr/bin").iterdir()} == {"arraybridgectl"}
    told = subprocess.run([tmp_path / "usr/bin/arraybridgectl", "completion", "bash"], capture_output=True, text=True)
    assert told.returncode == 0 and "arraybridgectl" in told.stdout


def test_files_are_only_in_expected_places(root: Path) -> None:
    assert {path.name for path in root.iterdir()} == {"usr"}
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    for wanted in (
        "usr/bin/arraybridged",
        "usr/bin/arraybridgectl",
        "usr/lib/systemd/system/arraybridged.service",
        "usr/lib/systemd/system/arraybridged-admin.socket",
        "usr/lib/systemd/system/arraybridged-lifeline.socket",
        "usr/lib/systemd/user/arraybridged.service",
        "usr/lib/systemd/catalog/arraybridged.catalog",
        "usr/lib/sysusers.d/arraybridge.conf",
        "usr/lib/tmpfiles.d/arraybridge.conf",
        "usr/share/arraybridge/arraybridged.toml",
        "usr/share/arraybridge/conf.d/gpus.toml.example",
        "usr/include/arraybridge/arraybridge.h",
        "usr/share/arraybridge/proto/arraybridge/v1/broker.proto",
        "usr/share/arraybridge/proto/writing-a-client.md",
        "usr/share/doc/libarraybridge1/copyright",
        "usr/share/doc/arraybridge-tools/changelog.gz",
    ):
        assert wanted in found
    pages = {"man8/arraybridged.8", "man1/arraybridgectl.1", "man5/arraybridged.toml.5", "man7/arraybridge.7"}
    made = pages if (BUILD / "arraybridged.8.gz").exists() else set()  # without scdoc there are no manual pages
    assert {path for path in found if path.startswith("usr/share/man/")} == {f"usr/share/man/{page}.gz" for page in made}
    assert not [path for path in found if "simulated" in path or "gtest" in path]


def test_the_unpacked_daemon_serves(root: Path, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    read, write = os.pipe()
    config = root / "usr/share/arraybridge/arraybridged.toml"
    daemon = subprocess.Popen(
        [root / "usr/bin/arraybridged", "--config", config, "--directory", directory, "--http", "off", "--ready-fd", str(write)],
        pass_fds=[write],
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    with os.fdopen(read) as lines:
        assert lines.readline() == "ready\n"
    ping = subprocess.run([root / "usr/bin/arraybridgectl", "-H", directory, "ping"], capture_output=True, text=True)
    assert (ping.returncode, ping.stdout) == (0, "ok\n")
    daemon.send_signal(signal.SIGTERM)
    assert daemon.wait() == 0


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is not installed")
def test_lintian_reports_no_error(packages: dict[str, Path], tmp_path: Path) -> None:
    copies = [str(shutil.copy(package, tmp_path)) for package in packages.values()]
    flags = ["--fail-on", "error,warning"]
    if os.geteuid() == 0:
        flags.append("--allow-root")
    done = subprocess.run(["lintian", *flags, *copies], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
