# SPDX-License-Identifier: Apache-2.0
"""Examines what this host, the broker and this Python can share, with the command that mends each problem.

Prints the findings of `arraybridgectl doctor`, the installed frameworks with their protocols, and the distribution that
is imported as `arraybridge`. The exit status is 1 if there is a problem.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from arraybridge import _bin, _conflict, _core, adapters
from arraybridge._conflict import DISTRIBUTION
from arraybridge.arrays import devices
from arraybridge.commands import tables
from arraybridge.errors import InvalidRequest

_MARK = "arraybridge doctor: "  # separates our output from that of frameworks
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


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    health: str  # ok, note or problem
    finding: str
    mend: str = ""  # a command that helps, if there is one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help=f"examine only these of {', '.join(_ARRAYS)}")
    parser.add_argument("--address", help="the broker's directory; default: as found by arraybridgectl")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")


def run(wishes: argparse.Namespace) -> int:
    unknown = sorted(set(wishes.frameworks) - set(_ARRAYS))
    if unknown:
        raise InvalidRequest(f"unknown frameworks: {', '.join(unknown)}; choose from {', '.join(_ARRAYS)}")
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        told = threads.map(framework, wishes.frameworks or _ARRAYS)
        findings = [*host_and_broker(wishes.address), import_name(), *told]
    if wishes.output == "json":
        print(json.dumps([{name: getattr(each, name) for name in Finding.__slots__} for each in findings], indent=1))
    else:
        rows = [[each.what, each.health, each.finding, each.mend] for each in findings]
        print(tables.markdown(["what", "health", "finding", "mended by"], rows))
    return 1 if any(each.health == "problem" for each in findings) else 0


def host_and_broker(address: str | None) -> list[Finding]:
    """The findings of arraybridgectl. Starts no broker; a missing one is no problem, since a Broker() starts one."""
    try:
        command = [_bin.path("arraybridgectl"), *(["-H", address] if address else []), "-o", "json", "doctor"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = json.loads(done.stdout)
    except (OSError, ValueError) as error:
        return [Finding("host", "problem", f"arraybridgectl does not answer: {error}", _conflict.reinstall())]
    findings = [Finding(each["what"], each["health"], each["finding"], each["mend"]) for each in told]
    if address:
        return findings
    sockets = ("broker", "broker.sock", "lifeline.sock")
    absent = [each for each in findings if each.what in sockets and each.health == "problem"]
    if len(absent) < len(sockets):
        return findings
    kept = [each for each in findings if each not in absent]
    return [*kept, Finding("broker", "note", "none runs for this user: the first Broker() starts one")]


def import_name() -> Finding:
    """Whether `import arraybridge` imports this package, and not another distribution's of the same name."""
    others = sorted(set(importlib.metadata.packages_distributions().get("arraybridge", [])) - {DISTRIBUTION})
    if others:
        return Finding("import name", "problem", _conflict.finding(others), _conflict.mend(others))
    return Finding("import name", "ok", f"arraybridge is {DISTRIBUTION} {importlib.metadata.version(DISTRIBUTION)}")


def framework(name: str) -> Finding:
    """The version and protocols of a framework, found in a separate process: some frameworks end a process that has
    others.
    """
    module, _, extra = _ARRAYS[name]
    mend = adapters.pip_install(extra) or f"pip install {name}"
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        return Finding(name, "note", "not installed", mend)
    command = [sys.executable, "-c", f"from arraybridge.commands import doctor; doctor.tell({name!r})"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    told = done.stdout.rpartition(_MARK)[2].strip()
    if done.returncode == 0 and told:
        return _of_version(name, told)
    last = done.stderr.strip().rpartition("\n")[2]
    why = f"ends the process by signal {-done.returncode}" if done.returncode < 0 else f"fails: {last}"
    return Finding(name, "problem", f"its import {why}", f"{mend} --force-reinstall")


def _of_version(name: str, told: str) -> Finding:
    """The finding of a framework that works: whether its version is supported by this package's metadata."""
    oldest, version = oldest_of(name), told.partition(":")[0]
    if not oldest or not adapters.is_older(version, tuple(map(int, oldest.split(".")))):
        return Finding(name, "ok", told)
    mend = adapters.pip_install(_ARRAYS[name][2]) or f"pip install '{name}>={oldest}'"
    return Finding(name, "problem", f"{version} is older than {oldest}, the oldest version that is tested", mend)


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
