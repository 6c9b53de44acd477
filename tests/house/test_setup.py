# SPDX-License-Identifier: Apache-2.0
"""deploy/setup waits for another apt, and installs what the benchmarks import."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HELD = "Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"
UNABLE = "Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?"


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    """A folder with deploy/lib.sh and an apt-get that ends as the lines of the file `ends` say, one a call."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
    fake = tmp_path / "bin/apt-get"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\necho "$@" >>calls\nline=$(head -n 1 ends)\nsed -i 1d ends\n[ -z "$line" ] && exit 0\necho "E: $line" >&2\nexit 100\n'
    )
    fake.chmod(0o755)
    return tmp_path


def run(apt: Path, ends: list[str], report: str = "3>&2") -> subprocess.CompletedProcess[str]:
    (apt / "ends").write_text("".join(f"{each}\n" for each in ends))
    script = f"set -euo pipefail; source deploy/lib.sh; exec {report}; step apt-install 'a package' apt_get install -qy hello"
    variables = {**os.environ, "PATH": f"{apt}/bin:{os.environ['PATH']}", "APT_PAUSE_S": "0"}
    return subprocess.run(["bash", "-c", script], cwd=apt, env=variables, capture_output=True, text=True)


@pytest.mark.parametrize("reason", [HELD, UNABLE])
def test_another_apt_is_awaited_and_reported_once(apt: Path, reason: str) -> None:
    done = run(apt, [reason, reason, ""])
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"   waiting for another apt, 10 min at most: {reason}\n"
    calls = (apt / "calls").read_text().splitlines()
    assert calls == ["-o Acquire::Retries=3 -o DPkg::Lock::Timeout=5 install -qy hello"] * 3
    assert reason in (apt / "build/logs/apt-install.log").read_text()


def test_another_error_of_apt_is_not_repeated(apt: Path) -> None:
    done = run(apt, ["Unable to locate package hello", ""])
    assert done.returncode == 100 and "Unable to locate package hello" in done.stderr and "waiting" not in done.stderr
    assert len((apt / "calls").read_text().splitlines()) == 1


def test_no_script_calls_apt_without_waiting() -> None:
    scripts = [path for path in (ROOT / "deploy").iterdir() if path.is_file()]
    found = {
        path.name: re.findall(r"^[^#\n]*\bapt(?:-get)? (?:-o \S+ )*(?:update|install).*$", path.read_text(), re.MULTILINE)
        for path in scripts
    }
    assert {name: lines for name, lines in found.items() if any("echo" not in line for line in lines)} == {}
    assert "apt_get install" in (ROOT / "deploy/setup").read_text()


def test_the_benchmarks_install_what_they_import() -> None:
    groups = re.findall(r"^deploy/setup ((?:(?!peers)\w+ ?)+)>&2$", (ROOT / "tests/bench/run").read_text(), re.MULTILINE)
    pages = [ROOT / f"deploy/requirements/{name}.txt" for each in groups for name in each.split()]
    pins = {pin for page in pages for pin in re.findall(r"^([\w-]+)==", page.read_text(), re.MULTILINE)}
    sources = [*(ROOT / "tests/bench").glob("*.py"), ROOT / "tests/foreign/foreign_client.py", ROOT / "tests/faults/victim.py"]
    text = "\n".join(path.read_text() for path in sources)
    for module, package in {
        "grpc": "grpcio",
        "grpc_tools": "grpcio-tools",
        "safetensors": "safetensors",
        "torch": "torch",
        "jax": "jax",
    }.items():
        assert re.search(rf"^\s*(?:import|from) {module}\b", text, re.MULTILINE), f"{module} is not imported any more"
        assert package in pins, package
