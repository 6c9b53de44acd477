"""Strangers' programs against an installed tree: found by CMake and by pkg-config, in C++ and in C."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_install import address, prefix

__all__ = ["address", "prefix"]

CONSUMER = Path(__file__).parent / "consumer"


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_cmake_finds_it(prefix: Path, address: Path, tmp_path: Path) -> None:
    run("cmake", "-S", CONSUMER, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}", "-G", "Ninja")
    run("ninja", "-C", tmp_path / "build")
    assert run(tmp_path / "build/in_c", address) == "ok\n"
    assert run(tmp_path / "build/in_cxx", address) == "5 float32\n"


def test_cmake_refuses_another_major_version(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\nfind_package(arraybridge 1 CONFIG REQUIRED)\n"
    )
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode != 0 and "compatible with requested version" in " ".join(done.stderr.split())


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="pkg-config is not installed")
def test_pkg_config_finds_it(prefix: Path, address: Path, tmp_path: Path) -> None:
    (folder,) = {str(path.parent) for path in prefix.glob("lib/**/arraybridge.pc")}
    flags = run("pkg-config", "--cflags", "--libs", "arraybridge", PKG_CONFIG_PATH=folder).split()
    run("gcc", "-std=c11", CONSUMER / "program.c", "-o", tmp_path / "in_c", *flags)
    assert run(tmp_path / "in_c", address) == "ok\n"
    run("g++", "-std=c++20", CONSUMER / "program.cc", "-o", tmp_path / "in_cxx", *flags)
    assert run(tmp_path / "in_cxx", address) == "5 float32\n"
    assert run("pkg-config", "--modversion", "arraybridge", PKG_CONFIG_PATH=folder).strip() in run(prefix / "bin/arraybridged", "--version")
