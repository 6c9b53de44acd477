# SPDX-License-Identifier: Apache-2.0
"""The units, parsed by systemd's tools without a running systemd."""

from __future__ import annotations

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "deploy/systemd"
SYSTEM = sorted(path.name for path in UNITS.glob("arraybridged*"))
USER = sorted(path.name for path in (UNITS / "user").iterdir())
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Copies with an existing program, because verify checks that it exists and the daemon is not installed here."""
    for path in [*UNITS.glob("arraybridged*"), *(UNITS / "user").iterdir()]:
        text = path.read_text()
        assert text.count("\nExecStart=/usr/bin/arraybridged ") == (path.suffix == ".service")
        copy = tmp_path / path.relative_to(UNITS)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text.replace("/usr/bin/arraybridged", shutil.which("true") or "/bin/true"))
    return tmp_path


def test_every_unit_is_listed() -> None:
    assert SYSTEM == [
        "arraybridged-admin.socket",
        "arraybridged-http.socket",
        "arraybridged-lifeline.socket",
        "arraybridged.service",
        "arraybridged.socket",
    ]
    assert USER == ["arraybridged-lifeline.socket", "arraybridged.service", "arraybridged.socket"]


@needs_systemd
def test_verify_reports_no_error(units: Path) -> None:
    answer = analyze("verify", "--man=no", *(units / name for name in SYSTEM))
    assert (answer.returncode, answer.stdout + answer.stderr) == (0, "")


@needs_systemd
def test_verify_reports_no_error_in_the_users_units(units: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    answer = analyze("--user", "verify", "--man=no", *(units / "user" / name for name in USER))
    assert (answer.returncode, answer.stdout + answer.stderr) == (0, "")


@needs_systemd
def test_verify_reports_an_injected_error(units: Path) -> None:
    unit = units / "arraybridged.service"
    unit.write_text(unit.read_text() + "\nRestrictAdressFamilies=AF_UNIX\n")
    assert "RestrictAdressFamilies" in analyze("verify", "--man=no", unit).stderr


@needs_systemd
def test_exposure_is_low(units: Path) -> None:
    answer = analyze("security", "--offline=true", "--threshold=15", units / "arraybridged.service")  # tenths: 1.5
    assert answer.returncode == 0, answer.stdout


def read(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path)
    return parser


@pytest.mark.parametrize("folder", ["", "user"])
def test_the_daemon_supports_the_names_of_the_units_sockets(folder: str) -> None:
    source = (UNITS.parents[1] / "daemon/service/system/passed_sockets.h").read_text()
    kinds = {}
    for path in (UNITS / folder).glob("*.socket"):
        section = read(path)["Socket"]
        assert section["Service"] == "arraybridged.service"
        assert f'= "{section["FileDescriptorName"]}";' in source
        kinds[section["FileDescriptorName"]] = next(key for key in section if key.startswith("Listen"))
    wanted = {"lifeline": "ListenSequentialPacket", "broker": "ListenStream", "admin": "ListenStream", "http": "ListenStream"}
    assert kinds == {name: kind for name, kind in wanted.items() if not (folder and name in ("admin", "http"))}


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed")
def test_user_and_directory_are_created_in_a_bare_root(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    made = subprocess.run(["systemd-sysusers", f"--root={tmp_path}", UNITS / "sysusers.conf"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    accounts = {line.split(":")[0]: line.split(":") for line in (tmp_path / "etc/passwd").read_text().splitlines()}
    assert accounts["arraybridge"][6].endswith("nologin")
    assert any(line.startswith("arraybridge:") for line in (tmp_path / "etc/group").read_text().splitlines())
    made = subprocess.run(["systemd-tmpfiles", f"--root={tmp_path}", "--create", UNITS / "tmpfiles.conf"], capture_output=True, text=True)
    directory = tmp_path / "run/arraybridge"
    assert directory.stat().st_mode & 0o7777 == 0o751, made.stderr
    assert any(line.startswith("arraybridge-admin:") for line in (tmp_path / "etc/group").read_text().splitlines())
    assert directory.stat().st_uid == int(accounts["arraybridge"][2]), made.stderr
