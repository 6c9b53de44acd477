# SPDX-License-Identifier: Apache-2.0
"""Virtual environments of one framework each, made of what is installed here: site-packages of their own that show the
framework, what it requires, and this package. Nothing is downloaded, and nothing is copied but this package.

`environments.py FOLDER` puts this package into an environment that is there, made of other versions.
"""

import csv
import importlib.metadata
import shutil
import sys
import venv
from collections import defaultdict
from pathlib import Path

from packaging.requirements import Requirement

import arraybridge
from arraybridge import _core

DISTRIBUTIONS = {
    "numpy": "numpy",
    "torch": "torch",
    "tensorflow": "tensorflow-cpu",
    "jax": "jax",
    "pyclesperanto": "pyclesperanto",
    "pyarrow": "pyarrow",
}
DEPTH_MAX = 4  # of folders that several distributions share, as `nvidia` is
Parts = tuple[str, ...]


def made(framework: str, folder: Path) -> Path:
    """The interpreter of a new environment in `folder`.

    Raises:
        importlib.metadata.PackageNotFoundError: the framework is not installed here.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    [site] = folder.glob("lib/python3*/site-packages")
    _link(_with_requirements({DISTRIBUTIONS[framework], "numpy"}), site)
    add_package(folder)
    return folder / "bin/python"


def add_package(folder: Path) -> None:
    """Copies this package, as it is now, into the environment in `folder`."""
    [site] = folder.glob("lib/python3*/site-packages")
    package = site / "arraybridge"
    shutil.rmtree(package, ignore_errors=True)
    shutil.copytree(Path(arraybridge.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "bin"))
    shutil.copy(_core.__file__, package)


def _with_requirements(wanted: set[str]) -> set[str]:
    """The names of distributions, and of all that they require here."""
    found: set[str] = set()
    pending = [*wanted]
    while pending:
        distribution = importlib.metadata.distribution(pending.pop())
        if distribution.name in found:
            continue
        found.add(distribution.name)
        for line in distribution.requires or ():
            requirement = Requirement(line)
            needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if needed and _is_installed(requirement.name):
                pending.append(requirement.name)
    return found


def _is_installed(name: str) -> bool:
    # torch runs on a CPU without some of what it requires (deploy/requirements).
    return any(importlib.metadata.distributions(name=name))


def _link(wanted: set[str], site: Path) -> None:
    """Links to what these distributions laid down: whole folders where nobody else has anything in them."""
    owners: dict[Parts, set[str]] = defaultdict(set)
    home: dict[Parts, Path] = {}
    for distribution in importlib.metadata.distributions():
        here, name = Path(str(distribution.locate_file(""))), distribution.name
        # Not `files`: that looks at each of a hundred thousand.
        lines = csv.reader((distribution.read_text("RECORD") or "").splitlines())
        for folder in {tuple(line[0].split("/")[:DEPTH_MAX]) for line in lines}:
            for depth in range(1, len(folder) + 1):
                owners[folder[:depth]].add(name)
                home[folder[:depth]] = here.joinpath(*folder[:depth])
    for path in sorted(owners, key=len):
        if ".." in path or "__pycache__" in path or not owners[path] & wanted:
            continue
        link = site.joinpath(*path)
        if any(parent.is_symlink() for parent in link.parents if parent != site):
            continue
        if owners[path] <= wanted or len(path) == DEPTH_MAX:
            if home[path].exists():
                link.symlink_to(home[path])
        else:
            link.mkdir()


if __name__ == "__main__":
    add_package(Path(sys.argv[1]))
