# SPDX-License-Identifier: Apache-2.0
"""The files of `cmake --install` are complete: a C++ program built with the installed headers and archives puts an array into
the installed daemon and gets it back, and the installed tool lists it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build/dev"))
LOADER = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[platform.machine()]

PROGRAM = r"""
#include <arraybridge/broker.h>
#include <cstdio>
#include <vector>

int main(int, char** argv) {
  arraybridge::Broker broker({.address = argv[1], .ns = "installed", .client = "stranger"});
  std::vector<float> numbers(1000, 1.5f);
  const auto view = arraybridge::Describe(numbers.data(), {2, 32, 1}, {10, 100}, {}, {}, true, nullptr);
  const auto placed = broker.Place({&*view, 1});
  arraybridge::Broker::PublishOptions options;
  options.name = "numbers";
  const auto share = broker.Publish(*placed, options);
  if (!share.ok()) return std::puts(share.status().ToString().c_str()), 1;
  arraybridge::ShareRef wanted;
  wanted.name = "numbers";
  const auto got = broker.Acquire(wanted);
  if (!got.ok()) return std::puts(got.status().ToString().c_str()), 1;
  std::printf("%g\n", static_cast<double>(static_cast<const float*>(got->views[0].data)[999]));
  std::getchar();
}
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("prefix")
    subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(where)], check=True, stdout=subprocess.DEVNULL)
    return where


@contextlib.contextmanager
def serving(prefix: Path, directory: Path, *flags: str) -> Iterator[None]:
    """An installed daemon with its sockets in this directory."""
    directory.mkdir(mode=0o700)
    read, write = os.pipe()
    command = [str(prefix / "bin/arraybridged"), "--directory", str(directory), "--ready-fd", str(write), *flags]
    daemon = subprocess.Popen(command, pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as lines:
        assert lines.readline() == "ready\n"
    yield
    daemon.terminate()
    assert daemon.wait() == 0


@pytest.fixture
def address(prefix: Path, tmp_path: Path) -> Iterator[Path]:
    with serving(prefix, tmp_path / "broker"):
        yield tmp_path / "broker"


def test_an_installed_tree_serves_a_third_party_program(prefix: Path, address: Path, tmp_path: Path) -> None:
    source, program = tmp_path / "program.cc", tmp_path / "program"
    source.write_text(PROGRAM)
    include, lib = prefix / "include", next(prefix.glob("lib/**/libarraybridge_client.a")).parent
    compiler = shutil.which("g++")
    assert compiler is not None
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{include}", f"-I{include / 'arraybridge/internal'}"]
    archives = [f"-L{lib}", "-larraybridge_client", "-larraybridge_boundary", "-pthread"]
    subprocess.run([compiler, *flags, str(source), "-o", str(program), *archives], check=True)
    stranger = subprocess.Popen([str(program), str(address)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert stranger.stdin is not None and stranger.stdout is not None
    try:
        stranger.stdin.write("")
        listed = wait_for_share(prefix, address)
        assert [share["share"]["name"] for share in listed] == ["numbers"]
    finally:
        out, _ = stranger.communicate("\n")
    assert out == "1.5\n" and stranger.returncode == 0


def wait_for_share(prefix: Path, address: Path) -> list[dict[str, dict[str, str]]]:
    for _ in range(2000):
        done = subprocess.run(
            [str(prefix / "bin/arraybridgectl"), "-H", str(address), "--timeout", "90s", "-n", "installed", "-o", "json", "ls", "shares"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        shares: list[dict[str, dict[str, str]]] = json.loads(done.stdout).get("shares", [])
        if shares:
            return shares
    raise AssertionError("the share never appeared")


def test_the_client_library_needs_only_libc_and_libstdcxx(prefix: Path) -> None:
    """The archives define or need no symbol of gRPC, Protocol Buffers or absl."""
    for archive in prefix.glob("lib/**/libarraybridge*.a"):
        symbols = subprocess.run(["nm", "-C", str(archive)], stdout=subprocess.PIPE, text=True, check=True).stdout
        for word in ("grpc", "google::protobuf", "absl::", "spdlog"):
            assert word not in symbols, f"{archive.name}: {word}"


def test_the_daemon_is_one_file(prefix: Path) -> None:
    for name in ("arraybridged", "arraybridgectl"):
        dynamic = subprocess.run(["readelf", "-d", str(prefix / "bin" / name)], stdout=subprocess.PIPE, text=True, check=True)
        needed = {line.split("[")[1].rstrip("]") for line in dynamic.stdout.splitlines() if "(NEEDED)" in line}
        assert needed <= {"libc.so.6", "libm.so.6", "libgcc_s.so.1", LOADER}, needed


COMPONENTS = {
    "Daemon": {"bin/arraybridged"},
    "Tools": {"bin/arraybridgectl"},
    "Service": {"lib/systemd/system/arraybridged.service", "lib/sysusers.d/arraybridge.conf", "share/arraybridge/arraybridged.toml"},
    "Runtime": {"lib/libarraybridge.so.1"},
    "Development": {"include/arraybridge/arraybridge.h", "lib/libarraybridge_client.a", "lib/pkgconfig/arraybridge.pc"},
    "Notices": {f"share/doc/arraybridge/{name}" for name in ("LICENSE", "THIRD_PARTY_NOTICES", "arraybridge.cdx.json")},
    "Protocol": {
        "share/arraybridge/proto/writing-a-client.md",
        *(f"share/arraybridge/proto/arraybridge/v1/{name}.proto" for name in ("admin", "array", "born", "broker", "tiers")),
    },
}


def test_each_component_has_its_files(tmp_path: Path) -> None:
    laid: dict[str, str] = {}
    for component, wanted in COMPONENTS.items():
        where = tmp_path / component
        command = ["cmake", "--install", str(BUILD), "--prefix", str(where), "--component", component]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = {re.sub(r"^lib/[^/]+-linux-gnu/", "lib/", str(path.relative_to(where))) for path in where.rglob("*") if not path.is_dir()}
        assert wanted <= found, component
        if component in ("Daemon", "Tools", "Notices", "Protocol"):
            assert found == wanted
        for path in found:
            assert laid.setdefault(path, component) == component, path
