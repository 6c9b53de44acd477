# SPDX-License-Identifier: Apache-2.0
"""What deploy/release refuses, skips and prints, without the builds: in a repository that has only it and what it reads."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = "7.8.9"


def git(repository: Path, *words: str) -> None:
    names = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
    subprocess.run(["git", *names, "-C", repository, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    there = tmp_path / "repository"
    (there / "deploy").mkdir(parents=True)
    (there / "dist").mkdir()
    (there / "dist/an.artefact").touch()
    for name in ("release", "lib.sh"):
        shutil.copy(ROOT / "deploy" / name, there / "deploy")
    (there / "deploy/setup").write_text("#!/bin/sh\n")
    (there / "deploy/setup").chmod(0o755)
    (there / ".gitignore").write_text("/build/\n/dist/\n")
    (there / "CMakeLists.txt").write_text(f"project(arraybridge VERSION {VERSION} LANGUAGES CXX)\n")
    (there / "CHANGELOG.md").write_text("## [Unreleased]\n")
    git(there, "init", "-q")
    git(there, "add", "-A")
    git(there, "commit", "-qm", "all")
    return there


def release(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run([repository / "deploy/release", *arguments], capture_output=True, text=True, env=environment)


def test_a_commit_without_the_versions_tag_is_a_trial(repository: Path) -> None:
    made = release(repository, "--only", "sums")
    assert made.returncode == 0 and f"a trial: this commit has no tag v{VERSION}" in made.stdout


def test_a_tagged_commit_needs_a_section_and_unchanged_files(repository: Path) -> None:
    git(repository, "tag", f"v{VERSION}")
    refused = release(repository, "--only", "sums")
    assert refused.returncode == 1 and f"CHANGELOG.md has no section '## [{VERSION}] - <date>'" in refused.stderr
    (repository / "CHANGELOG.md").write_text(f"## [Unreleased]\n\n## [{VERSION}] - 2030-01-02\n")
    refused = release(repository, "--only", "sums")
    assert refused.returncode == 1 and "files were changed since" in refused.stderr
    git(repository, "commit", "-qam", "section")
    git(repository, "tag", "-f", f"v{VERSION}")
    made = release(repository, "--only", "sums")
    assert made.returncode == 0 and "trial" not in made.stdout, made.stderr


def test_the_sums_are_of_every_file(repository: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "a.whl").write_bytes(b"wheel")
    assert release(repository, "--only", "sums", "--output", str(folder)).returncode == 0
    assert (folder / "SHA256SUMS").read_text() == f"{hashlib.sha256(b'wheel').hexdigest()}  a.whl\n"


def test_a_step_that_cannot_run_is_skipped_with_its_reason(repository: Path) -> None:
    made = release(repository, "--only", "docs|sums")
    assert made.returncode == 0, made.stderr
    assert "SKIPPED: this tree has no deploy/docs" in made.stdout and "\nskipped: docs\n" in made.stdout


def test_a_step_that_fails_does_not_end_the_others(repository: Path) -> None:
    (repository / "deploy/docs").write_text("#!/bin/sh\necho no page\nexit 3\n")
    (repository / "deploy/docs").chmod(0o755)
    made = release(repository, "--only", "docs|sums")
    assert made.returncode == 1 and "\nfailed: docs\n" in made.stdout and (repository / "dist/SHA256SUMS").exists()
    assert "no page\n" in made.stdout


def test_the_files_of_the_other_machine_stay(repository: Path) -> None:
    machine = os.uname().machine
    for name, text in {"deploy/wheel": f'echo new >"$1/a_{machine}.whl"', ".venv/bin/python": 'echo "checked: $*"'}.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(f"#!/bin/sh\n{text}\n")
        (repository / name).chmod(0o755)
    for old in ("another_machine.whl", f"old_{machine}.whl"):
        (repository / "dist" / old).touch()
    made = release(repository, "--only", "wheel")
    assert made.returncode == 0, made.stdout + made.stderr
    assert {path.name for path in (repository / "dist").glob("*.whl")} == {"another_machine.whl", f"a_{machine}.whl"}
    checked = (repository / "build/logs/check-wheel.log").read_text()
    assert checked.endswith(f"/dist/a_{machine}.whl\n") and "another" not in checked


@pytest.mark.skipif(os.uname().machine == "aarch64", reason="aarch64 makes its own files")
def test_another_machine_gets_what_the_cross_compiler_makes(repository: Path) -> None:
    programs = {
        "deploy/wheel": 'echo "$1 $2" >"$3/a_aarch64.whl"',
        "deploy/image": 'echo "$1 $2" >"$3"',
        "deploy/aarch64/root": "echo libraries",
        ".venv/bin/python": 'echo "1 passed: $*"',
    }
    for name, text in programs.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(f"#!/bin/sh\n{text}\n")
        (repository / name).chmod(0o755)
    (repository / "dist/own_x86_64.whl").touch()
    made = release(repository, "--machine", "aarch64", "--only", "wheel|image")
    assert made.returncode == 0, made.stdout + made.stderr
    assert (repository / f"dist/arraybridged-{VERSION}-arm64-image.tar").read_text() == "--machine aarch64\n"
    assert "tests/engine/test_other_machine.py" in (repository / "build/logs/check-image.log").read_text()
    assert (repository / "dist/a_aarch64.whl").read_text() == "--machine aarch64\n" and (repository / "dist/own_x86_64.whl").exists()
    assert "tests/aarch64/test_wheel.py" in (repository / "build/logs/check-wheel.log").read_text()


def test_a_machine_without_a_cross_compiler_is_refused(repository: Path) -> None:
    refused = release(repository, "--machine", "riscv64", "--only", "wheel")
    assert refused.returncode == 64 and "files for riscv64 are made on riscv64 alone" in refused.stderr


def test_unknown_words_are_answered_with_the_usage(repository: Path) -> None:
    assert release(repository, "--only", "nothing").returncode == 64
    unknown = release(repository, "--all")
    assert unknown.returncode == 64 and "--only PATTERN" in unknown.stderr
    assert release(repository, "--list").stdout.split() == ["wheel", "debs", "docs", "image", "sums"]


def test_the_page_names_every_step() -> None:
    page = (ROOT / "docs/releasing.md").read_text()
    steps = subprocess.run([ROOT / "deploy/release", "--list"], capture_output=True, text=True, check=True).stdout.split()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == steps
