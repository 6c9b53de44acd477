# SPDX-License-Identifier: Apache-2.0
"""CuPy's module ``cupy_backends.cuda.api.runtime``, compiled from its source to use the simulated runtime.

PyPI's module has NVIDIA's runtime inside, which asks the driver for a private table. All other modules are PyPI's.
"""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

NAME = "cupy_backends.cuda.api.runtime"
SOURCE = Path(*NAME.split(".")).with_suffix(".pyx")
# The settings with which CuPy's own build compiles the module for CUDA 13.
CYTHONIZE = f"""
import Cython
from Cython.Build import cythonize
from setuptools import Extension

cythonize(
    [Extension({NAME!r}, [{str(SOURCE)!r}], language="c++")],
    language_level=3,
    compile_time_env=dict(
        CUPY_USE_CUDA_PYTHON=False, CUPY_CUFFT_STATIC=False, CUPY_CYTHON_VERSION=Cython.__version__, CUPY_CUDA_VERSION=13000,
        CUPY_HIP_VERSION=0,
    ),
    compiler_directives={{"embedsignature": True, "binding": False, "c_api_binop_methods": True, "freethreading_compatible": True}},
)
"""


def made(folder: Path, runtime: Path, includes: Path) -> Path:
    """Compiles the module in the folder, once for each version of CuPy; returns its path."""
    wanted = version("cupy-cuda13x")
    source = folder / f"cupy-{wanted}"
    module = source / "runtime.so"
    cpp = source / SOURCE.with_suffix(".cpp")
    if not cpp.exists():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:", "--no-deps", "--no-build-isolation",
             f"cupy=={wanted}", "-d", folder],
            check=True, env={**os.environ, "CUPY_INSTALL_USE_STUB": "1"},  # else it looks for a CUDA Toolkit, only to name its files
        )  # fmt: skip
        subprocess.run(["tar", "-xzf", folder / f"cupy-{wanted}.tar.gz", "-C", folder], check=True)
        subprocess.run([sys.executable, "-c", CYTHONIZE], cwd=source, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if not module.exists() or module.stat().st_mtime < cpp.stat().st_mtime:
        subprocess.run(
            [os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-fPIC", "-shared", "-w", f"-I{source / 'cupy_backends'}",
             "-isystem", str(includes), "-isystem", sysconfig.get_paths()["include"], str(cpp), str(runtime), "-o", str(module)],
            check=True,
        )  # fmt: skip
    return module


def load(module: str) -> None:
    """Makes the next ``import cupy`` use the module at this path."""
    spec = importlib.util.spec_from_file_location(NAME, module)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = loaded
    spec.loader.exec_module(loaded)
    package, _, name = NAME.rpartition(".")
    setattr(importlib.import_module(package), name, loaded)
