# SPDX-License-Identifier: Apache-2.0
"""Whatever our binaries contain of other projects has its notice in everything that is delivered, and is in the SBOM."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_install import BUILD, ROOT, prefix

__all__ = ["prefix"]

NOTICES = ROOT / "deploy/notices.py"
needs_dpkg = pytest.mark.skipif(shutil.which("dpkg") is None, reason="not installed: dpkg, which knows the packages of archives")


def collect(build: Path, output: Path, *maps: Path, strict: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, NOTICES, build, output, *maps, *(["--strict"] if strict else [])]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True)


def listed(text: str) -> set[str]:
    """Names of the projects in the list at the head of the notices."""
    return set(re.findall(r"^\* (\S+)", text.split("\n=", 1)[0], re.MULTILINE))


def linked_archives(program: Path) -> set[str]:
    """Archives outside of the build in the program's link command."""
    link = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", "-s", program], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?<= )(/\S+\.a)\b", link))


@needs_dpkg
def test_every_archive_in_our_programs_has_a_notice(tmp_path: Path) -> None:
    maps = sorted((BUILD / "notices").rglob("*.map"))
    assert {"arraybridged.map", "arraybridgectl.map", "libarraybridge.so.map"} <= {each.name for each in maps}
    done = collect(BUILD, tmp_path, *maps)
    assert done.returncode == 0, done.stderr


@needs_dpkg
@pytest.mark.parametrize("program", ["daemon/arraybridged", "client/ctl/arraybridgectl"])
def test_the_link_command_agrees_with_the_list(program: str, prefix: Path) -> None:
    """The list is made from the linker's map; a project of the link command that is not in it was linked for nothing."""
    told = subprocess.run(["dpkg", "-S", *linked_archives(Path(program))], capture_output=True, text=True, check=True).stdout
    packages = {line.split(":")[0] for line in told.splitlines()}
    query = ["dpkg-query", "-W", "-f=${source:Package}\n", *packages]
    sources = set(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split())
    assert sources and sources <= listed((prefix / "share/doc/arraybridge/THIRD_PARTY_NOTICES").read_text())


def test_the_installed_tree_has_notices_and_sbom(prefix: Path) -> None:
    folder = prefix / "share/doc/arraybridge"
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    text = (folder / "THIRD_PARTY_NOTICES").read_text()
    document: dict[str, Any] = json.loads((folder / "arraybridge.cdx.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"])
    assert {each["name"] for each in document["components"]} == listed(text) >= {"grpc", "zlib", "apache-tvm-ffi"}
    references = [each["bom-ref"] for each in document["components"]]
    assert document["dependencies"][0] == {"ref": "arraybridge", "dependsOn": references} and len(set(references)) == len(references)
    for each in document["components"]:
        assert each["type"] == "library" and each["version"] and each["purl"].startswith("pkg:")
    for words in ("Jean-loup Gailly", "END OF TERMS AND CONDITIONS", "The text to which a notice above refers"):
        assert words in text


def test_every_debian_package_has_the_notices(packages: dict[str, Path], tmp_path: Path) -> None:
    for name, package in packages.items():
        subprocess.run(["dpkg-deb", "-x", str(package), str(tmp_path / name)], check=True)
        folder = tmp_path / name / "usr/share/doc" / name
        text = gzip.decompress((folder / "THIRD_PARTY_NOTICES.gz").read_bytes()).decode()
        projects = {re.sub(r"-\d+$", "", project) for project in listed(text)}  # gcc, not gcc-12
        (comment,) = re.findall(r"^Comment:(.*?)^$", (folder / "copyright").read_text(), re.MULTILINE | re.DOTALL)
        assert [project for project in sorted(projects) if not re.search(rf"(?<!\w){re.escape(project)}(?!\w)", comment)] == []


def a_build(folder: Path, archive: Path, header: Path) -> Path:
    """The files of a build of one program: one object file of one header, and one member of an archive. Returns its map."""
    (folder / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={folder}/source\nCMAKE_PROJECT_VERSION:STATIC=1.2.3\n")
    (folder / "build.ninja").write_text("build libours.a: CXX_STATIC_LIBRARY ours.o | other\n")
    log = b"# ninjadeps\n" + struct.pack("<i", 4)
    for number, path in enumerate([b"ours.o", str(header).encode()]):
        padded = path + b"\0" * (-len(path) % 4)
        log += struct.pack("<I", len(padded) + 4) + padded + struct.pack("<i", ~number)
    record = struct.pack("<iIIi", 0, 7, 0, 1)
    (folder / ".ninja_deps").write_bytes(log + struct.pack("<I", len(record) | 1 << 31) + record)
    linker_map = folder / "program.map"
    linker_map.write_text(f"libours.a(ours.o)\n      main.o (f)\n{archive}(theirs.o)\n      ours.o (g)\n\nLOAD main.o\nLOAD libours.a\n")
    return linker_map


@pytest.mark.parametrize("strange", ["archive", "header"])
def test_a_file_without_a_notice_is_named_and_strict_refuses_it(strange: str, tmp_path: Path) -> None:
    ours = tmp_path / "build"
    ours.mkdir()
    elsewhere = tmp_path / "elsewhere"
    archive, header = ours / "known.a", ours / "known.h"
    if strange == "archive":
        archive = elsewhere / "libnew.a"
    else:
        header = elsewhere / "new.h"
    linker_map = a_build(ours, archive, header)
    name = "libnew.a" if strange == "archive" else "elsewhere/new.h"
    refused = collect(ours, tmp_path / "out", linker_map)
    assert refused.returncode == 1 and f"notices: {name}: no notice was found" in refused.stderr
    assert not (tmp_path / "out").exists()
    assert collect(ours, tmp_path / "out", linker_map, strict=False).returncode == 0
    assert f"found no notice for these files:\n* {name}\n" in (tmp_path / "out/THIRD_PARTY_NOTICES").read_text()
