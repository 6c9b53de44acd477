# SPDX-License-Identifier: Apache-2.0
"""The environment in which XLA, the compiler of JAX and TensorFlow, runs on the simulated driver.

Its kernels stay PTX, which the driver interprets, and small libraries stand for those that it opens when it begins.
"""

import importlib.util
import os
import subprocess
from pathlib import Path

import runtime
from programs import DRIVER, HERE

# The libraries that are opened by their names, by the runtime's major version. JAX finds all others in PyPI's packages.
NAMES = {
    13: ["libcudnn.so.9"],
    12: [
        "libcudnn.so.9", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11", "libcusolver.so.11", "libcusparse.so.12",
    ],
}  # fmt: skip
TOOLKIT = HERE / "xla"  # has a ptxas
FLAGS = [
    f"--xla_gpu_cuda_data_dir={TOOLKIT}",
    "--xla_gpu_enable_libnvptxcompiler=false",
    "--xla_gpu_enable_libnvjitlink=false",
    "--xla_gpu_autotune_level=0",  # it would measure kernels
    "--xla_gpu_enable_command_buffer=",  # no graphs
]


def made(folder: Path, major: int) -> Path:
    """Makes the libraries in the folder, beside links to the driver and its management library; returns the folder."""
    compiler, code = os.environ.get("CXX", "c++"), folder / "libraries.o"
    subprocess.run(
        [compiler, "-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", f"-DCUDART_VERSION={1000 * major}",
         "-c", str(HERE / "xla/libraries.cc"), "-o", str(code)],
        check=True,
    )  # fmt: skip
    for name in NAMES[major]:
        versions = folder / f"{name}.map"
        versions.write_text(f"{name} {{ global: cudnn*; local: *; }};\n")  # as the real library has it
        linking = [f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}", "-o", str(folder / name)]
        subprocess.run([compiler, "-shared", str(code), *linking], check=True)
    (folder / "libcuda.so.1").symlink_to(DRIVER)
    (folder / "libnvidia-ml.so.1").symlink_to(DRIVER.with_name("libsimulated_nvml.so"))
    return folder


def real_cudnn() -> Path:
    found = importlib.util.find_spec("nvidia.cudnn")
    assert found is not None and found.submodule_search_locations
    return Path(next(iter(found.submodule_search_locations))) / "lib/libcudnn.so.9"


def environment(folder: Path, runtimes: str) -> dict[str, str]:
    """The variables of a process with XLA, in addition to those of `programs.one_gpu`."""
    return {
        "LD_LIBRARY_PATH": str(folder),
        # XLA opens the first library of this name; PyTorch finds in the second one what the first has not.
        "LD_PRELOAD": f"{runtimes} {folder / 'libcudnn.so.9'} {real_cudnn()}",
        "XLA_FLAGS": " ".join(FLAGS),
        "CUDA_ROOT": str(TOOLKIT),  # JAX sets the flag by it
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "JAX_PLATFORMS": "cuda,cpu",
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # versions of libraries that are not used
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


def with_jax(folder: Path, libraries: Path) -> dict[str, str]:
    """The environment of a process with JAX, whose runtime is that of CUDA 13, in `libraries`."""
    return environment(made(folder, 13), str(libraries / "libcudart.so.13"))


def with_tensorflow(folder: Path, libraries: Path) -> dict[str, str]:
    """The environment of a process with TensorFlow, whose runtime is that of CUDA 12, and perhaps others, of 13."""
    includes = runtime.headers(12)
    assert includes is not None
    return environment(made(folder, 12), f"{runtime.made(folder, includes, 12)} {libraries / 'libcudart.so.13'}")
