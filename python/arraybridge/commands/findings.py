# SPDX-License-Identifier: Apache-2.0
"""Prints what `arraybridgectl doctor` reports of this Python: the frameworks, and what is imported as `arraybridge`.

Each line is a finding: what, health (ok, note or problem), finding, and the command that mends it, separated by tabs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from arraybridge import _conflict, _core, adapters
from arraybridge._conflict import DISTRIBUTION
from arraybridge.arrays import devices
from arraybridge.errors import InvalidRequest

_MARK = "arraybridge findings: "  # separates our output from that of frameworks
# Framework: (module, path of its array's class, our extra that installs it).
_ARRAYS = {
    "numpy": ("numpy", "ndarray", ""),
    "torch": ("torch", "Tensor", "torch"),
    "tensorflow": ("tensorflow", "Tensor", "tensorflow"),
    "jax": ("jax", "Array", "jax"),
    "cupy": ("cupy", "ndarray", "cupy"),
    "numba.cuda": ("numba.cuda.cudadrv.devicearray", "DeviceNDArray", "numba"),
    "pyarrow": ("pyarrow", "Array", "pyarrow"),
    "pyclesperanto": ("pyclesperanto", "Array", "pyclesperanto"),
}
_DIALECTS = (
    ("__dlpack_c_exchange_api__", "DLPack's C table"),
    ("__c_dlpack_exchange_api__", "DLPack's C table"),
    ("__dlpack__", "DLPack"),
    ("__cuda_array_interface__", "CUDA array interface"),
    ("__array_interface__", "array interface"),
    ("__array__", "__array__"),
)


Finding = tuple[str, str, str, str]  # what, health, finding, and a command that helps, if there is one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help=f"examine only these of {', '.join(_ARRAYS)}")


def run(wishes: argparse.Namespace) -> int:
    unknown = sorted(set(wishes.frameworks) - set(_ARRAYS))
    if unknown:
        raise InvalidRequest(f"unknown frameworks: {', '.join(unknown)}; choose from {', '.join(_ARRAYS)}")
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for found in (import_name(), *threads.map(framework, wishes.frameworks or _ARRAYS)):
            print("\t".join(" ".join(field.split()) for field in found))
    return 0


def import_name() -> Finding:
    """Whether `import arraybridge` imports this package, and not another distribution's of the same name."""
    others = sorted(set(importlib.metadata.packages_distributions().get("arraybridge", [])) - {DISTRIBUTION})
    if others:
        return "import name", "problem", _conflict.finding(others), _conflict.mend(others)
    return "import name", "ok", f"arraybridge is {DISTRIBUTION} {importlib.metadata.version(DISTRIBUTION)}", ""


def framework(name: str) -> Finding:
    """The version and protocols of a framework, found in a separate process: some frameworks end a process that has
    others.
    """
    module, _, extra = _ARRAYS[name]
    mend = adapters.pip_install(extra) or f"pip install {name}"
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        return name, "note", "not installed", mend
    command = [sys.executable, "-c", f"from arraybridge.commands import findings; findings.tell({name!r})"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    reported = done.stdout.rpartition(_MARK)[2].strip()
    if done.returncode == 0 and reported:
        return _of_version(name, reported)
    last = done.stderr.strip().rpartition("\n")[2]
    why = f"ends the process by signal {-done.returncode}" if done.returncode < 0 else f"fails: {last}"
    return name, "problem", f"its import {why}", f"{mend} --force-reinstall"


def _of_version(name: str, reported: str) -> Finding:
    """The finding of a framework that works: whether its version is supported by this package's metadata."""
    oldest, version = oldest_of(name), reported.partition(":")[0]
    if not oldest or not adapters.is_older(version, tuple(map(int, oldest.split(".")))):
        return name, "ok", reported, ""
    mend = adapters.pip_install(_ARRAYS[name][2]) or f"pip install '{name}>={oldest}'"
    return name, "problem", f"{version} is older than {oldest}, the oldest version that is tested", mend


def oldest_of(name: str) -> str:
    """The oldest version of a framework in the metadata; "" if the metadata does not name it."""
    versions = [re.match(r"[\w-]+>=([\d.]+)$", package) for package in adapters.packages_of(_ARRAYS[name][2])]
    return next((each[1] for each in versions if each), "")


def tell(name: str) -> None:
    """Prints what `framework` reads. Imports it."""
    module, path, _ = _ARRAYS[name]
    kind: Any = importlib.import_module(module)
    version = importlib.import_module(module.partition(".")[0]).__version__
    for part in path.split("."):
        kind = getattr(kind, part)
    adapter = adapters.named(name.partition(".")[0])
    if devices.CPU in adapter.caps().devices:
        # Reads the class of an actual array: the class that users know is often abstract.
        kind = type(adapter.view(_core.copy_to_heap(_core.wrap_buffer(bytes(4)))))
    spoken = list(dict.fromkeys(word for attribute, word in _DIALECTS if hasattr(kind, attribute)))
    print(f"{_MARK}{version}: {', '.join(spoken) or 'the buffer protocol'}")
