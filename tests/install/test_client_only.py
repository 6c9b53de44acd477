# SPDX-License-Identifier: Apache-2.0
"""ARRAYBRIDGE_PARTS=client builds and installs the client library where none of the daemon's libraries can be found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_consumers import build_by_cmake, build_by_pkg_config, check_programs, run
from test_install import ROOT, address, prefix

__all__ = ["address", "prefix"]

FOLDER = ROOT / "build/client"  # kept, so that a second run compiles only changes
USR = Path("/usr")
HEADERS = ("grpc", "grpc++", "grpcpp", "google", "absl", "spdlog", "fmt", "toml++", "CLI", "event2", "openssl")
HIDDEN_FOLDERS = [USR / "include" / name for name in HEADERS] + [
    path for name in ("cmake", "pkgconfig") for path in USR.glob(f"lib/*/{name}")
]
HIDDEN_PROGRAMS = [USR / "bin" / name for name in ("protoc", "grpc_cpp_plugin")]

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="not installed: bwrap")


def within() -> list[str]:
    """Runs a command where the headers, CMake packages and programs of the daemon's libraries do not exist."""
    command = ["bwrap", "--die-with-parent", "--dev-bind", "/", "/"]
    for folder in HIDDEN_FOLDERS:
        command += ["--tmpfs", str(folder)] if folder.exists() else []
    for program in HIDDEN_PROGRAMS:
        command += ["--ro-bind", "/dev/null", str(program)] if program.exists() else []
    return command


def configure(folder: Path, *definitions: str) -> list[str]:
    python = f"-DPython_EXECUTABLE={sys.executable}"  # has dlpack.h
    return ["cmake", "--fresh", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", python, *definitions]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("client")
    run(*within(), *configure(FOLDER, "-DARRAYBRIDGE_PARTS=client"))
    run(*within(), "cmake", "--build", FOLDER)
    run(*within(), "cmake", "--install", FOLDER, "--prefix", where)
    return where


@needs_bwrap
def test_the_place_lacks_what_the_daemon_needs(tmp_path: Path) -> None:
    done = subprocess.run([*within(), *configure(tmp_path)], capture_output=True, text=True)
    assert done.returncode != 0 and "grpc++" in done.stderr


@needs_bwrap
def test_programs_find_it_by_cmake(client: Path, address: Path, tmp_path: Path) -> None:
    build_by_cmake(client, tmp_path, *within())
    check_programs(tmp_path, address)


@needs_bwrap
@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="pkg-config is not installed")
def test_programs_find_it_by_pkg_config(client: Path, address: Path, tmp_path: Path) -> None:
    build_by_pkg_config(client, tmp_path, *within())
    check_programs(tmp_path, address)


@needs_bwrap
def test_nothing_of_the_daemon_is_installed(client: Path) -> None:
    assert {path.name for path in client.iterdir()} == {"include", "lib", "share"}
    assert not [path for path in client.rglob("*") if path.name.startswith(("arraybridged", "arraybridgectl", "systemd"))]


@needs_bwrap
@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_packages_of_the_library_alone(client: Path, tmp_path: Path) -> None:
    run("cpack", "-G", "DEB", "--config", FOLDER / "CPackConfig.cmake", "-B", tmp_path)
    assert {path.name.split("_")[0] for path in tmp_path.glob("*.deb")} == {"libarraybridge1", "libarraybridge-dev"}


@pytest.mark.parametrize(
    ("definitions", "message"),
    [
        (["-DARRAYBRIDGE_PARTS=clients"], 'ARRAYBRIDGE_PARTS is "clients"'),
        (["-DARRAYBRIDGE_PARTS=client", "-DARRAYBRIDGE_TESTS=ON"], "need ARRAYBRIDGE_PARTS=all"),
    ],
)
def test_what_cannot_be_built_is_refused(definitions: list[str], message: str, tmp_path: Path) -> None:
    done = subprocess.run(configure(tmp_path, *definitions), capture_output=True, text=True)
    assert done.returncode != 0 and message in " ".join(done.stderr.split())
