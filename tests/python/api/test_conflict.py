# SPDX-License-Identifier: Apache-2.0
"""Another distribution that installs a package `arraybridge`: said at import, with its name and what mends it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[3] / "python/arraybridge"
OTHER_OWNS = "arraybridge/__init__.py,,\narraybridge/conversion.py,,\n"
MEND = "pip uninstall -y arraybridge && pip install --force-reinstall --no-deps arraybridged"  # it came from an index


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Where our wheel was installed, as far as an import needs it."""
    folder = tmp_path / "site-packages"
    shutil.copytree(PACKAGE, folder / "arraybridge", ignore=shutil.ignore_patterns("__pycache__", "bin", "*.so"))
    distribution(folder, "arraybridged", "0.1.0", OTHER_OWNS)
    return folder


def distribution(site: Path, name: str, version: str, record: str) -> None:
    described = site / f"{name}-{version}.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (described / "RECORD").write_text(record)


def python(site: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    head = f"import runpy, sys; sys.path.insert(0, {str(site)!r}); "
    command = [sys.executable, "-I", "-S", "-W", "default", "-c", head + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_without_another_nothing_is_looked_up(site: Path) -> None:
    distribution(site, "arraybridge_tools", "1.0", OTHER_OWNS)  # another name
    done = python(site, "import arraybridge; print('importlib.metadata' in sys.modules)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


def test_another_beside_us_is_named_with_what_mends_it(site: Path) -> None:
    distribution(site, "arraybridge", "0.5.2", OTHER_OWNS)
    done = python(site, "import arraybridge; print(arraybridge.MemoryType.TORCH)")
    assert (done.returncode, done.stdout) == (0, "torch\n")
    assert done.stderr.startswith("<string>:1: UserWarning: arraybridge 0.5.2 also installs a package arraybridge")
    assert MEND in done.stderr


def test_another_that_has_no_such_package_is_none(site: Path) -> None:
    distribution(site, "arraybridge", "0.5.2", "elsewhere/__init__.py,,\n")
    done = python(site, "import arraybridge")
    assert (done.returncode, done.stderr) == (0, "")


def test_another_that_does_not_say_what_it_brought_is_named(site: Path) -> None:
    distribution(site, "arraybridge", "0.2.1", "")
    (site / "arraybridge-0.2.1.dist-info/RECORD").unlink()
    assert "arraybridge 0.2.1 also installs" in python(site, "import arraybridge").stderr


def test_what_mends_it_installs_from_where_this_one_came(site: Path, tmp_path: Path) -> None:
    distribution(site, "arraybridge", "0.5.2", OTHER_OWNS)
    clone = tmp_path / "a clone"
    clone.mkdir()
    command = "pip install --force-reinstall --no-deps"
    for origin, wanted in (
        ({"url": clone.as_uri(), "dir_info": {}}, f"{command} '{clone}'"),
        ({"url": clone.as_uri(), "dir_info": {"editable": True}}, f"{command} -e '{clone}'"),
        ({"url": "file:///no/such/file.whl", "archive_info": {}}, f"{command} . (in a clone of arraybridged)"),
        ({"url": "https://host/a.whl", "archive_info": {}}, f"{command} https://host/a.whl"),
        ({"url": "https://host/a", "vcs_info": {"vcs": "git", "commit_id": "7e"}}, f"{command} git+https://host/a@7e"),
        ({}, f"{command} . (in a clone of arraybridged)"),
    ):
        (site / "arraybridged-0.1.0.dist-info/direct_url.json").write_text(json.dumps(origin))
        said = python(site, "import arraybridge").stderr
        assert f"pip uninstall -y arraybridge && {wanted}\n" in said, origin


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """A wheel of these files, as pip takes it."""
    described = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{described}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{described}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{described}/RECORD", "".join(f"{file},,\n" for file in [*files, f"{described}/RECORD"]))
    return path


def test_what_mends_it_works_when_it_is_followed(tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    ours = {f"arraybridge/{file.relative_to(PACKAGE)}": file.read_text() for file in PACKAGE.rglob("*.py")}
    theirs = {"arraybridge/__init__.py": "", "arraybridge/decorators.py": ""}

    def run(command: str) -> subprocess.CompletedProcess[str]:
        path = f"{environment}/bin:{os.environ['PATH']}"
        variables = {**os.environ, "PATH": path, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        variables.pop("PYTHONPATH", None)
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=variables)

    for name, version, files in (("arraybridged", "0.1.0", ours), ("arraybridge", "0.5.2", theirs)):
        done = run(f"pip install --no-deps {wheel(tmp_path, name, version, files)}")
        assert done.returncode == 0, done.stderr
    refused = run("python -c 'import arraybridge.broker'")
    assert refused.returncode == 1 and "pip uninstall -y arraybridge && pip install" in refused.stderr, refused.stderr
    mended = run(refused.stderr.strip().rpartition("the other. ")[2])
    assert mended.returncode == 0, mended.stderr
    done = run("python -W error -c 'import arraybridge; print(arraybridge.MemoryType.TORCH)'")
    assert (done.returncode, done.stdout, done.stderr) == (0, "torch\n", "")


@pytest.mark.parametrize("script", ["import arraybridge.broker", "runpy.run_module('arraybridge', run_name='__main__')"])
def test_files_that_another_overwrote_are_refused(site: Path, script: str) -> None:
    distribution(site, "arraybridge", "0.5.2", OTHER_OWNS)
    for overwritten in ("__init__.py", "devices.py", "decorators.py"):
        (site / "arraybridge" / overwritten).write_text("")
    done = python(site, script, "doctor")
    assert done.returncode == 1
    last = done.stderr.strip().rpartition("\n")[2]
    assert last == f"ImportError: arraybridge 0.5.2 also installs a package arraybridge: one overwrites the other. {MEND}"


@pytest.mark.parametrize("damage", ["RECORD", "METADATA", "blank", "empty"])
def test_what_is_damaged_beside_us_is_nothing_to_an_import(site: Path, damage: str) -> None:
    distribution(site, "arraybridge", "0.5.2", OTHER_OWNS)
    described = site / "arraybridge-0.5.2.dist-info"
    if damage == "empty":
        for file in described.iterdir():
            file.unlink()
    elif damage == "blank":
        (described / "RECORD").write_text("\n\n")
    else:
        (described / damage).write_bytes(b"\xff\xfe\x00")
    done = python(site, "import arraybridge; print(arraybridge.MemoryType.TORCH)")
    assert (done.returncode, done.stdout) == (0, "torch\n")
    assert "None" not in done.stderr
