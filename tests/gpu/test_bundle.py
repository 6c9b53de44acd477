# SPDX-License-Identifier: Apache-2.0
"""The archive of tests/gpu/bundle runs by itself, on the simulated driver: unpacked elsewhere, without this tree, its
build folders, the libraries that it was built from, or a network.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
from expected import check_simulated_run

BYTES_MAX = 60 << 20
ELSEWHERE = Path("/tmp/elsewhere")
# A Python like that of a machine with a GPU: pytest, PyTorch, Numba. It lacks grpcio, which this test adds.
PYTHON = ROOT / "build/simulated_cuda/venv"
LENT = ("grpc", "google")
# Files of the packages that the bundle was built with.
HIDDEN = ("/usr/include/google", "/usr/include/grpcpp", "/usr/include/gtest")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    file = folder / "arraybridge-gpu.tar.gz"
    made = subprocess.run([HERE / "bundle", file], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    assert file.stat().st_size < BYTES_MAX
    subprocess.run(["tar", "-C", folder, "-xzf", file], check=True)
    file.unlink()
    folder.chmod(0o755)  # E15 runs as other users
    return folder


def test_it_says_whether_it_has_an_extension_for_a_machine_that_cannot_build(unpacked: Path) -> None:
    built = unpacked / "arraybridge-gpu/build/gpu"
    prebuilt = [file.name for file in built.glob("prebuilt/*")]
    assert len(prebuilt) == ("; an extension for Python 3.12" in (built / "BUNDLE").read_text())
    assert all(name.startswith("_core.cpython-312-") for name in prebuilt)


def compiler_cache() -> list[str | Path]:
    """The compiler cache, if there is one: a bare machine compiles the same files each time."""
    cache = os.environ.get("CCACHE_DIR")
    return ["--bind", cache, "/tmp/ccache", "--setenv", "CCACHE_DIR", "/tmp/ccache"] if cache else []


def lent() -> list[str | Path]:
    words: list[str | Path] = ["--setenv", "PYTHONPATH", "/tmp/packages"]
    for name in LENT:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.submodule_search_locations
        words += ["--ro-bind", next(iter(found.submodule_search_locations)), f"/tmp/packages/{name}"]
    return words


def bare(folder: Path) -> list[str | Path]:
    """A command that runs another one on a machine that has only `folder` of this tree."""
    words: list[str | Path] = ["bwrap", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev"]
    words += ["--unshare-pid", "--unshare-net", "--die-with-parent", "--cap-add", "ALL", "--proc", "/proc"]
    for hidden in ("/root", "/tmp", ROOT, *(each for each in HIDDEN if Path(each).exists())):
        words += ["--tmpfs", hidden]
    words += ["--bind", folder, ELSEWHERE, "--ro-bind", PYTHON, PYTHON, *lent(), *compiler_cache()]
    for name, value in {"PATH": "/usr/bin:/bin", "HOME": "/root", "PYTHON": PYTHON / "bin/python"}.items():
        words += ["--setenv", name, value]
    return [*words, "--chdir", "/tmp"]


def test_it_runs_where_nothing_else_is(unpacked: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    tried = subprocess.run([*bare(unpacked), "test", "!", "-e", HERE / "run"], capture_output=True, text=True, env={}, check=False)
    if tried.returncode != 0:
        pytest.skip(f"namespaces cannot be made here: {tried.stderr.strip()}")
    command = [*bare(unpacked), ELSEWHERE / "arraybridge-gpu/tests/gpu/run", "--simulated", "--out", ELSEWHERE / "results"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={}, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert str(ROOT / "python") not in said
    check_simulated_run(unpacked / "results", said, built=True)
