# SPDX-License-Identifier: Apache-2.0
"""Facts about this machine: printed before the first measurement, and written above every result."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

FRAMEWORKS = ("torch", "cupy-cuda13x", "jax", "numba-cuda", "numba", "numpy", "cuda-bindings")
CUINIT_S = 60.0
# Programs that steps and experiments run.
TOOLS = ("c++", "cmake", "ninja", "nvidia-smi", "pidof", "setpriv", "unshare")
QUERY = ("name", "driver_version", "uuid", "compute_mode", "persistence_mode", "mig.mode.current", "memory.total")


def said(*command: str) -> str:
    """The output of a command, or "" if there is no such command."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def versions() -> dict[str, str]:
    found = {}
    for name in FRAMEWORKS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def driver_path() -> str:
    """The absolute path of the system's libcuda.so.1, which this loads."""
    ctypes.CDLL("libcuda.so.1")
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.search(r"(/\S*libcuda\.so\S*|/\S*libsimulated_cuda\.so)$", line)
        if found:
            return found[1]
    raise OSError("libcuda.so.1 is loaded from nowhere that has a path")


def asked() -> dict[str, str]:
    """The driver's path, and the first device according to it: nvidia-smi may be missing, or another machine's."""
    library = driver_path()
    driver = ctypes.CDLL(library)
    if (failed := driver.cuInit(0)) != 0:
        raise OSError(f"cuInit: {failed}")
    version, name, uuid, total, mode = (
        ctypes.c_int(),
        ctypes.create_string_buffer(128),
        (ctypes.c_ubyte * 16)(),
        ctypes.c_size_t(),
        ctypes.c_int(),
    )
    count = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    driver.cuDeviceGetCount(ctypes.byref(count))
    driver.cuDeviceGetName(name, 128, 0)
    driver.cuDeviceGetUuid_v2(uuid, 0)
    driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    driver.cuDeviceGetAttribute(ctypes.byref(mode), 20, 0)
    digits = bytes(uuid).hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return {
        "driver": library,
        "GPU": f"{name.value.decode()}, {total.value / 2**30:.1f} GiB, {count.value} of them",
        "CUDA of the driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "UUID": "GPU-" + "-".join(parts),
        "compute mode": str(mode.value),
    }


def card(limit: float | None) -> dict[str, str]:
    """What `asked` finds, asked in a process that has ended since: one that has initialised the driver keeps the GPU
    open, which changes the answers of experiments.

    Raises:
        OSError: there is no driver, or it finds no device.
    """
    try:
        done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(f"cuInit did not return within {limit:.0f} s") from None
    if done.returncode != 0:
        raise OSError(done.stderr.strip() or f"the driver ended the process that asked it: {done.returncode}")
    found: dict[str, str] = json.loads(done.stdout)
    return found


def facts(simulated: bool) -> dict[str, str]:
    found = {"date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"), **card(None if simulated else CUINIT_S)}
    if not simulated:
        found["nvidia-smi"] = said("nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader").replace("\n", " | ")
        for name, program in (("MPS", "nvidia-cuda-mps-control"), ("persistence daemon", "nvidia-persistenced")):
            found[name] = "running" if said("pidof", program) else "not running"
        found["device nodes"] = " ".join(sorted(each.name for each in Path("/dev").glob("nvidia*"))) or "none"
        with contextlib.suppress(OSError):
            found["kernel module"] = Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
        found["/dev/shm"] = f"{shutil.disk_usage('/dev/shm').free / 2**30:.1f} GiB free"
        said_by = {name: value for name, value in os.environ.items() if name.startswith(("LD_", "CUDA", "NVIDIA", "XLA"))}
        found["environment"] = " ".join(f"{name}={value}" for name, value in sorted(said_by.items())) or "says nothing"
        headers = Path(sysconfig.get_path("include"), "Python.h").exists()
        found["headers of Python"] = "here" if headers else "missing: the extension cannot be built"
        found["lacks"] = " ".join(tool for tool in TOOLS if shutil.which(tool) is None) or "no tool"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found["kernel"] = platform.release()  # gVisor reports 4.4.0
    found["host"] = f"{os.cpu_count()} CPUs, {memory / 2**30:.0f} GiB, uid {os.geteuid()}, glibc {platform.libc_ver()[1]}"
    found["Python"] = ", ".join([platform.python_version(), *(f"{name} {version}" for name, version in versions().items())])
    return found


def toolkit() -> Path | None:
    """The folder of <cuda.h>, if a toolkit is installed."""
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", str(Path(nvcc).resolve().parents[1]) if nvcc else ""]
    return next((Path(root, "include") for root in roots if root and Path(root, "include/cuda.h").exists()), None)


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


if __name__ == "__main__":
    try:
        print(json.dumps(asked()))
    except OSError as absent:
        sys.exit(str(absent))
