# SPDX-License-Identifier: Apache-2.0
"""A CUDA runtime over the simulated driver, to be preloaded: ``runtime.py FOLDER [MAJOR]`` makes it there and prints its path.

Frameworks are linked with the runtime of one major version. It is compiled against the headers of that version, because
some of its types differ, and has the version's name, so that a process that has it does not load the real one.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from programs import DRIVER, HERE, ROOT

MAJOR = 13
# Where the packages of a major version have its headers.
PACKAGES = {12: "nvidia.cuda_runtime", 13: "nvidia.cu13"}


def headers(major: int = MAJOR) -> Path | None:
    """The headers of the installed runtime of this version: the simulated one must have the same types."""
    try:
        found = importlib.util.find_spec(PACKAGES[major])
    except ModuleNotFoundError:
        return None
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations))) / "include"


def made(folder: Path, includes: Path, major: int = MAJOR) -> Path:
    """Compiles the library into the folder, under the name that frameworks look for; returns its path."""
    name = f"libcudart.so.{major}"
    library = folder / name
    # The real library's symbols have its name as their version.
    versions = folder / f"{name}.map"
    versions.write_text(f"{name} {{ global: cuda*; __cuda*; local: *; }};\n")
    sources = [str(path) for path in sorted((HERE / "cudart").glob("*.cc"))]
    subprocess.run(
        [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra",
         f"-I{ROOT}", "-isystem", str(includes), *sources, str(DRIVER), f"-Wl,-rpath,{DRIVER.parent}",
         f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}", "-o", str(library)],
        check=True,
    )  # fmt: skip
    return library


if __name__ == "__main__":
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else MAJOR
    known = headers(wanted)
    if known is None:
        raise SystemExit(f"the headers of CUDA's runtime {wanted} are not installed")
    print(made(Path(sys.argv[1]), known, wanted))
