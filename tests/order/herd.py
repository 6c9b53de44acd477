# SPDX-License-Identifier: Apache-2.0
"""herd7, which finds every outcome of a litmus test in a memory model. Debian sid has it; it runs there from its unpacked
package, with sid's C library beside it, and nothing is installed.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / "build" / "herd7"
CAT = {"rc11": "rc11.cat", "aarch64": "aarch64.cat"}
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
LOADER = LIBRARIES / "ld-linux-x86-64.so.2"
MODELS_OF_HERD = Path("usr/share/herdtools7/herd")


@dataclass(frozen=True)
class Outcome:
    """Whether the bad outcome of a test is possible: it is found, or its threads race for a word that is not atomic."""

    found: bool
    races: bool
    states: int

    @property
    def bad(self) -> bool:
        return self.found or self.races


class Herd:
    def __init__(self, unpacked: Path) -> None:
        libraries = unpacked / LIBRARIES
        self._words = [unpacked / LOADER, "--library-path", libraries, unpacked / "usr/bin/herd7", "-set-libdir", unpacked / MODELS_OF_HERD]

    def outcomes(self, model: str, programs: Mapping[str, str], folder: Path) -> dict[str, Outcome]:
        """Of each program, by name."""
        files = []
        for name, text in programs.items():
            files.append(folder / f"{name}.{model}.litmus")
            files[-1].write_text(text)
        done = subprocess.run([*self._words, "-model", CAT[model], *files], capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr.strip(), f"{done.stderr}\n{done.stdout}"
        found = {}
        for text in re.split(r"^(?=Test )", done.stdout, flags=re.MULTILINE)[1:]:
            observed = re.search(r"^Observation (\w+) (Never|Sometimes|Always) (\d+) (\d+)", text, re.MULTILINE)
            assert observed, text
            races = re.search(r"^Flag \W?undef", text, re.MULTILINE) is not None
            found[observed[1]] = Outcome(observed[2] != "Never", races, int(observed[3]) + int(observed[4]))
        assert found.keys() == programs.keys(), done.stdout
        return found


def fetch() -> Herd:
    """Unpacks it, once; skips if it is not there and cannot be fetched."""
    UNPACKED.parent.mkdir(exist_ok=True)
    with UNPACKED.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not UNPACKED.exists():
            _unpack(UNPACKED.with_suffix(".new"))
            UNPACKED.with_suffix(".new").rename(UNPACKED)
    return Herd(UNPACKED)


def _unpack(to: Path) -> None:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("herd7 is not there, and mmdebstrap, which fetches it, is not installed")
    whole = to.with_suffix(".root")
    for path in (to, whole):
        shutil.rmtree(path, ignore_errors=True)
    # A mirror may stand still for longer than the lists of sid are valid; their signature is checked all the same.
    words = ["mmdebstrap", "--architectures=amd64", "--variant=extract", "--include=herdtools7", "--format=directory"]
    words += ['--aptopt=Acquire::Check-Valid-Until "false"', "sid", str(whole), _mirror()]
    made = subprocess.run(words, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"herd7 cannot be fetched here: {' '.join(made.stderr.splitlines()[-3:])}")
    # Of 450 MB these are 30.
    for part in (Path("usr/bin/herd7"), MODELS_OF_HERD, *(path.relative_to(whole) for path in (whole / LIBRARIES).glob("*.so*"))):
        (to / part).parent.mkdir(parents=True, exist_ok=True)
        (whole / part).rename(to / part)
    shutil.rmtree(whole)


def _mirror() -> str:
    """The one from which this machine gets its own Debian."""
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main"]
    listed = subprocess.run(words, capture_output=True, text=True).stdout.split()
    mirrors = [uri for uri in listed if "security" not in uri]
    if not mirrors:
        pytest.skip("herd7 cannot be fetched here: apt knows no mirror of Debian")
    return mirrors[0]
