# SPDX-License-Identifier: Apache-2.0
"""The Debian packages for arm64: what they are for, need and have, and that their programs serve."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import tempfile
from pathlib import Path

import emulated
import pytest

PROGRAMS = {"arraybridged": "usr/bin/arraybridged", "arraybridge-tools": "usr/bin/arraybridgectl"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The packages by name: those in $ARRAYBRIDGE_PACKAGES, else those of the build."""
    if why := emulated.missing("daemon/of_debian/arraybridged", "notices/of_debian/THIRD_PARTY_NOTICES.gz"):
        pytest.skip(why)
    folder = Path(os.environ.get("ARRAYBRIDGE_PACKAGES", tmp_path_factory.mktemp("packages")))
    if "ARRAYBRIDGE_PACKAGES" not in os.environ:
        command = ["cpack", "-G", "DEB", "--config", emulated.BUILD / "CPackConfig.cmake", "-B", folder]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return {path.name.split("_")[0]: path for path in folder.glob("*_arm64.deb")}


@pytest.fixture(scope="module")
def root(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, unpacked."""
    bare = tmp_path_factory.mktemp("root")
    for package in packages.values():
        subprocess.run(["dpkg-deb", "-x", package, bare], check=True)
    return bare


def field(package: Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", package, name], capture_output=True, text=True, check=True).stdout.strip()


def needed(package: Path) -> set[str]:
    return {each.split()[0] for each in field(package, "Depends").split(",")}


def test_there_are_four_for_arm64_that_need_the_same_as_on_this_machine(packages: dict[str, Path]) -> None:
    assert set(packages) == {*PROGRAMS, "libarraybridge1", "libarraybridge-dev"}
    assert {field(package, "Architecture") for package in packages.values()} == {"arm64"}
    for name in PROGRAMS:
        assert needed(packages[name]) == {"libc6", "libgcc-s1", "zlib1g"}
        assert "libc6 (>= 2.34)" in field(packages[name], "Depends")
    assert needed(packages["libarraybridge1"]) == {"libc6", "libgcc-s1", "libstdc++6"}
    assert field(packages["libarraybridge-dev"], "Depends").startswith("libarraybridge1 (= ")


def test_every_program_and_library_is_of_aarch64_and_stripped(root: Path) -> None:
    binaries = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]
    assert {path.name for path in binaries} == {"arraybridged", "arraybridgectl", "libarraybridge.so.1.0"}
    for path in binaries:
        header = subprocess.run(["readelf", "-hS", path], capture_output=True, text=True, check=True).stdout
        assert re.search(r"Machine: +AArch64", header) and ".symtab" not in header, path.name
    (library,) = root.glob("usr/lib/**/libarraybridge_client.a")
    told = subprocess.run(["readelf", "-h", library], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"Machine: +(\S+)", told)) == {"AArch64"}


def test_they_have_notices_of_what_is_linked(root: Path, packages: dict[str, Path]) -> None:
    for name in packages:
        text = gzip.decompress((root / f"usr/share/doc/{name}/THIRD_PARTY_NOTICES.gz").read_bytes()).decode()
        assert "The build found no notice" not in text
        listed = set(re.findall(r"^\* (\S+)", text.split("\n=", 1)[0], re.MULTILINE))
        assert listed >= {"abseil", "grpc", "protobuf", "apache-tvm-ffi"}, listed


def test_the_packaged_daemon_answers_the_packaged_tool(root: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="ab-arm-") as directory,
        emulated.daemon(Path(directory), 4096, root / PROGRAMS["arraybridged"]),
    ):
        words = emulated.command(root / PROGRAMS["arraybridge-tools"], 4096, "-H", directory, "ping")
        ping = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (ping.returncode, ping.stdout) == (0, "ok\n"), ping.stderr
