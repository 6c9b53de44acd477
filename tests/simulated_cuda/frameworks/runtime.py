# SPDX-License-Identifier: Apache-2.0
"""A libcudart over the simulated driver, to be preloaded: ``runtime.py FOLDER`` makes it there and prints its path."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from programs import DRIVER, HERE, ROOT


def headers() -> Path | None:
    """The headers of torch's runtime: our libcudart must have the same types."""
    found = importlib.util.find_spec("nvidia.cu13")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(next(iter(found.submodule_search_locations))) / "include"


def made(folder: Path, includes: Path) -> Path:
    library = folder / "libcudart_simulated.so"
    subprocess.run(
        [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra",
         f"-I{ROOT}", "-isystem", str(includes), str(HERE / "libcudart.cc"), str(DRIVER),
         f"-Wl,-rpath,{DRIVER.parent}", "-o", str(library)],
        check=True,
    )  # fmt: skip
    return library


if __name__ == "__main__":
    known = headers()
    if known is None:
        raise SystemExit("the CUDA runtime's headers are not installed")
    print(made(Path(sys.argv[1]), known))
