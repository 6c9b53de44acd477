# SPDX-License-Identifier: Apache-2.0
"""The simulated runtime has every function that the installed libraries import from the real one."""

import importlib.util
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path


def symbols(library: Path, *options: str) -> set[str]:
    """The runtime's functions among the dynamic symbols of a library."""
    done = subprocess.run(["nm", "-D", *options, str(library)], capture_output=True, text=True, check=True)
    return set(re.findall(r"\b((?:__)?cuda[A-Z]\w*)@+libcudart\.so\.13$", done.stdout, re.MULTILINE))


def is_library(path: Path) -> bool:
    if not path.is_file() or path.name.startswith("libcudart"):
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def importers() -> Iterator[Path]:
    for package in ("torch", "nvidia"):
        found = importlib.util.find_spec(package)
        assert found is not None
        for folder in found.submodule_search_locations or ():
            yield from filter(is_library, Path(folder).rglob("*.so*"))


def test_no_function_is_missing(libraries: Path) -> None:
    needed = {name: path.name for path in importers() for name in symbols(path, "--undefined-only")}
    assert len(needed) > 50, "torch's libraries were looked at"
    has = symbols(libraries / "libcudart.so.13", "--defined-only")
    assert {name: path for name, path in needed.items() if name not in has} == {}
