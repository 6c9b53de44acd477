"""Facts about this machine: printed before the first measurement, and written above every result."""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

FRAMEWORKS = ("torch", "cupy-cuda13x", "jax", "numba-cuda", "numba", "numpy", "cuda-bindings")
QUERY = ("name", "driver_version", "uuid", "compute_mode", "persistence_mode", "mig.mode.current", "memory.total")


def driver_path() -> str:
    """The absolute path of the system's libcuda.so.1.

    Raises:
        OSError: there is no such library.
    """
    ctypes.CDLL("libcuda.so.1")
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.search(r"(/\S*libcuda\.so\S*|/\S*libsimulated_cuda\.so)$", line)
        if found:
            return found[1]
    raise OSError("libcuda.so.1 is loaded from nowhere that has a path")


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


def card(library: str) -> dict[str, str]:
    """The first device according to the driver: nvidia-smi may be missing, or another machine's."""
    driver = ctypes.CDLL(library)
    if (failed := driver.cuInit(0)) != 0:
        raise OSError(f"cuInit: {failed}")
    version, name, uuid, total, mode = ctypes.c_int(), ctypes.create_string_buffer(128), (ctypes.c_ubyte * 16)(), ctypes.c_size_t(), ctypes.c_int()
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
        "GPU": f"{name.value.decode()}, {total.value / 2**30:.1f} GiB, {count.value} of them",
        "CUDA of the driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "UUID": "GPU-" + "-".join(parts),
        "compute mode": str(mode.value),
    }


def facts(library: str, simulated: bool) -> dict[str, str]:
    found = {"date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"), **card(library)}
    if not simulated:
        found["nvidia-smi"] = said("nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader").replace("\n", " | ")
        found["MPS"] = "running" if said("pidof", "nvidia-cuda-mps-control") else "not running"
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
