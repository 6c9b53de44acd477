# SPDX-License-Identifier: Apache-2.0
"""Third-party programs with an installed tree, found by CMake and by pkg-config, in C++ and in C."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_install import LOADER, ROOT, address, prefix, serving

__all__ = ["address", "prefix"]

CONSUMER = Path(__file__).parent / "consumer"


def run(*command: object, expect: int = 0, **environment: str) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


def build_by_cmake(prefix: Path, folder: Path, *within: str) -> None:
    run(*within, "cmake", "-S", CONSUMER, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}", "-G", "Ninja")
    run(*within, "ninja", "-C", folder)


def build_by_pkg_config(prefix: Path, folder: Path, *within: str) -> None:
    (pages,) = {str(path.parent) for path in prefix.glob("lib/**/arraybridge.pc")}
    flags = run(*within, "pkg-config", "--cflags", "--libs", "arraybridge", PKG_CONFIG_PATH=pages).split()
    run(*within, "gcc", "-std=c11", CONSUMER / "program.c", "-o", folder / "in_c", *flags)
    run(*within, "g++", "-std=c++20", CONSUMER / "program.cc", "-o", folder / "in_cxx", *flags)
    shared = run(*within, "pkg-config", "--cflags", "--libs", "arraybridge-c", PKG_CONFIG_PATH=pages).split()
    run(*within, "gcc", "-std=c11", CONSUMER / "program.c", "-o", folder / "in_plain_c", *shared)


def check_programs(folder: Path, address: Path) -> None:
    """The C program puts, the C++ program gets. REQUIRES: a new daemon."""
    assert run(folder / "in_c", address) == "ok\n"
    assert run(folder / "in_cxx", address) == "5 float32\n"
    assert "libarraybridge.so.1" in run("readelf", "-d", folder / "in_plain_c")


def test_cmake_finds_it(prefix: Path, address: Path, tmp_path: Path) -> None:
    build_by_cmake(prefix, tmp_path / "build")
    check_programs(tmp_path / "build", address)
    run(tmp_path / "build/in_plain_c", address.parent / "nowhere", expect=1)


def test_the_shared_object_exports_only_the_c_api(prefix: Path) -> None:
    (library,) = prefix.glob("lib/**/libarraybridge.so.1")
    lines = [line.split() for line in run("readelf", "--dyn-syms", "--wide", library).splitlines()]
    exported = {words[7] for words in lines if len(words) > 7 and words[6] != "UND" and words[4] in ("GLOBAL", "WEAK")}
    folder = prefix / "include/arraybridge"
    header = "".join(path.read_text() for path in (folder / "arraybridge.h", *(folder / "c").glob("*.h")))
    names = set(re.findall(r"^AB_API [^(]*\b(ab_\w+)\(", header, re.MULTILINE))
    assert names and exported == {f"{name}@@ARRAYBRIDGE_1" for name in names} | {"ARRAYBRIDGE_1"}
    # The list is the ABI promise: removing a function from header and source requires an explicit change here.
    assert set(re.findall(r"^    (\w+);$", (ROOT / "client/c_api.map").read_text(), re.MULTILINE)) == names
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library)))
    assert needed <= {"libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", LOADER}, needed


CALLER = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
library.ab_message.restype = ctypes.c_char_p

class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("address", ctypes.c_char_p), ("ns", ctypes.c_char_p),
                ("client", ctypes.c_char_p), ("timeout_ms", ctypes.c_int64)]

class View(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("data", ctypes.c_void_p), ("type_code", ctypes.c_uint8),
                ("type_bits", ctypes.c_uint8), ("type_lanes", ctypes.c_uint16), ("rank", ctypes.c_int32),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("read_only", ctypes.c_int32)]

class WithToken(Options):
    _fields_ = [("token", ctypes.c_char_p)]

token = os.environb.get(b"TOKEN_OF_OPTIONS")
kind = Options if token is None else WithToken
options = kind(ctypes.sizeof(kind), sys.argv[2].encode(), sys.argv[3].encode(), b"ctypes", 0)
if token is not None:
    options.token = token
broker, array = ctypes.c_void_p(), ctypes.c_void_p()
assert library.ab_connect(ctypes.byref(options), ctypes.byref(broker)) == 0, library.ab_message()
numbers, shape = (ctypes.c_double * 3)(1.5, 2.5, 3.5), (ctypes.c_int64 * 1)(3)
view = View(ctypes.sizeof(View), ctypes.addressof(numbers), 2, 64, 1, 1, shape, None, 1, 0, 0)
assert library.ab_put(broker, b"by ctypes", ctypes.byref(view), 0) == 0, library.ab_message()
assert library.ab_get(broker, b"by ctypes", ctypes.c_int64(0), ctypes.byref(array)) == 0, library.ab_message()
seen = View(ctypes.sizeof(View))
assert library.ab_view_of(array, ctypes.c_size_t(0), ctypes.byref(seen)) == 0, library.ab_message()
print((ctypes.c_double * 3).from_address(seen.data)[2])
library.ab_drop(array)
library.ab_disconnect(broker)
"""


def test_another_language_calls_it(prefix: Path, address: Path) -> None:
    (library,) = prefix.glob("lib/**/libarraybridge.so.1")
    assert run(sys.executable, "-c", CALLER, library, address, "default") == "3.5\n"


def test_a_token_opens_a_namespace_to_the_c_api(prefix: Path, tmp_path: Path) -> None:
    (library,) = prefix.glob("lib/**/libarraybridge.so.1")
    token, config = tmp_path / "token", tmp_path / "arraybridged.toml"
    run(prefix / "bin/arraybridgectl", "token", "create", token)
    config.write_text(f'[namespace.team]\naccess = ["token:{token}"]\n')
    secret = token.read_text().strip()
    call = (sys.executable, "-c", CALLER, library, tmp_path / "broker", "team")
    with serving(prefix, tmp_path / "broker", "--config", str(config)):
        for name, value in {"TOKEN_OF_OPTIONS": secret, "ARRAYBRIDGE_TOKEN": secret, "ARRAYBRIDGE_TOKEN_FILE": str(token)}.items():
            assert run("env", f"{name}={value}", *call) == "3.5\n"
            run(prefix / "bin/arraybridgectl", "-H", tmp_path / "broker", "-n", "team", "withdraw", "--admin", "by ctypes")
        run(*call, expect=1)
        run(*call, expect=1, TOKEN_OF_OPTIONS="another-token-of-some-length")
        run(*call, expect=1, TOKEN_OF_OPTIONS="", ARRAYBRIDGE_TOKEN=secret)  # "" means no token
        run(*call, expect=1, ARRAYBRIDGE_TOKEN_FILE=str(tmp_path / "nowhere"))


def test_cmake_refuses_another_major_version(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\nfind_package(arraybridge 1 CONFIG REQUIRED)\n"
    )
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode != 0 and "compatible with requested version" in " ".join(done.stderr.split())


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="pkg-config is not installed")
def test_pkg_config_finds_it(prefix: Path, address: Path, tmp_path: Path) -> None:
    build_by_pkg_config(prefix, tmp_path)
    check_programs(tmp_path, address)
    (library,) = prefix.glob("lib/**/libarraybridge.so.1")
    assert "from c" in run(tmp_path / "in_plain_c", address, expect=1, LD_LIBRARY_PATH=str(library.parent))  # the name exists already
    (folder,) = {str(path.parent) for path in prefix.glob("lib/**/arraybridge.pc")}
    assert run("pkg-config", "--modversion", "arraybridge", PKG_CONFIG_PATH=folder).strip() in run(prefix / "bin/arraybridged", "--version")
