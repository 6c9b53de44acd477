# SPDX-License-Identifier: Apache-2.0
"""Checks the wheel as a user would get it.

``check_wheel.py [WHEEL]``: without an argument, builds it as deploy/wheel does. Checks its content, its notices, the needs
and exports of its binaries, and its metadata. A wheel for this machine is then installed by pip into an environment with
NumPy only and without a compiler, and two processes share an array through the daemon in it.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / ("given-wheel" if sys.argv[1:] else "wheel")  # both may be checked at the same time
DAEMON_NEEDS = {"libc.so.6", "libm.so.6", "libgcc_s.so.1"}
EXTENSION_NEEDS = DAEMON_NEEDS | {"libstdc++.so.6"}
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
PLATFORM = "manylinux_2_34_"  # RHEL 9, Ubuntu 22.04 and newer; then the machine
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "ld", "cmake", "ninja", "make")
FOREIGN = re.compile(r"grpc|protobuf|absl|spdlog", re.IGNORECASE)

PRODUCER = """
import numpy, sys
from arraybridge import Broker
broker = Broker(sys.argv[1])
broker.put(numpy.arange(1000, dtype="int32"), "numbers")
print("put", flush=True)
sys.stdin.read()
"""
CONSUMER = """
import sys
from arraybridge import Broker
assert not [name for name in ("torch", "jax", "tensorflow") if name in sys.modules]
array = Broker(sys.argv[1]).get("numbers", "numpy")
assert int(array.sum()) == 499500 and not array.flags.writeable
"""


class Wrong(Exception):
    """The wheel fails a check."""


def run(*command: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        raise Wrong(f"{' '.join(str(word) for word in command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def machine_of(wheel: Path) -> str:
    for machine in LOADERS:
        if wheel.name.endswith(f"-{PLATFORM}{machine}.whl"):
            return machine
    raise Wrong(f"{wheel.name} is not for {PLATFORM} of {' or '.join(LOADERS)}")


def needs_of(binary: Path, machine: str) -> set[str]:
    header = run("readelf", "-h", binary)
    if not re.search({"x86_64": r"Machine: .*X86-64", "aarch64": r"Machine: .*AArch64"}[machine], header):
        raise Wrong(f"{binary.name} is not for {machine}:\n{header}")
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", run("readelf", "-d", binary))) - {LOADERS[machine]}


def build_or_take(given: list[str]) -> Path:
    shutil.rmtree(WORK, ignore_errors=True)
    if given:
        return Path(given[0]).resolve()
    run(ROOT / "deploy/wheel", WORK)
    wheels = list(WORK.glob("arraybridged-*.whl"))
    if len(wheels) != 1:
        raise Wrong(f"expected one wheel, found {wheels}")
    return wheels[0]


def check_content(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(WORK / "content")
    version = re.search(r"project\(arraybridge VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    if version is None or not wheel.name.startswith(f"arraybridged-{version[1]}-"):
        raise Wrong(f"{wheel.name} does not carry the version of CMakeLists.txt")
    wanted = ["__init__.py", "py.typed", "_core.pyi", "bin/arraybridged", "bin/arraybridgectl", "proto/writing-a-client.md"]
    wanted += [f"proto/arraybridge/v1/{name}.proto" for name in ("admin", "array", "broker")]
    missing = [name for name in wanted if f"arraybridge/{name}" not in names]
    if missing:
        raise Wrong(f"the wheel lacks {missing}")
    about = {name.split("/", 1)[1] for name in names if name.startswith(f"arraybridged-{version[1]}.dist-info/")}
    unsaid = {"licenses/LICENSE", "licenses/THIRD_PARTY_NOTICES", "sboms/arraybridge.cdx.json"} - about
    if unsaid:
        raise Wrong(f"the wheel's metadata lacks {sorted(unsaid)}")
    (notices,) = (WORK / "content").glob("arraybridged-*.dist-info/licenses/THIRD_PARTY_NOTICES")
    if "The build found no notice" in notices.read_text():
        raise Wrong("THIRD_PARTY_NOTICES lists files without a notice, below its list of projects")
    strange = [name for name in names if not name.startswith(("arraybridge/", "arraybridged-"))]
    if strange:
        raise Wrong(f"the wheel also holds {strange}")


def check_extension(extension: Path, machine: str) -> None:
    """The extension exports only its init symbol, and contains none of the libraries that would conflict with
    TensorFlow's own.
    """
    exported = [line.split()[-1] for line in run("nm", "-D", "--defined-only", extension).splitlines()]
    if exported != ["PyInit__core"]:
        raise Wrong(f"the extension exports {exported}")
    surplus = needs_of(extension, machine) - EXTENSION_NEEDS
    if surplus:
        raise Wrong(f"the extension needs {surplus}")
    inside = FOREIGN.search(extension.read_bytes().decode("latin-1"))
    if inside:
        raise Wrong(f"the extension holds something of {inside[0]}")


def check_executables(folder: Path, machine: str) -> None:
    for name in ("arraybridged", "arraybridgectl"):
        surplus = needs_of(folder / name, machine) - DAEMON_NEEDS
        if surplus:
            raise Wrong(f"{name} needs {surplus}")


def check_extras(folder: Path) -> None:
    """`pip install ".[x]"` exists for every framework with an adapter of its own."""
    (metadata,) = folder.glob("arraybridged-*.dist-info/METADATA")
    offered = set(re.findall(r"^Provides-Extra: (\S+)", metadata.read_text(), re.MULTILINE))
    adapters = {path.stem for path in (ROOT / "python/arraybridge/adapters").glob("*.py")}
    lacking = adapters - {"__init__", "generic", "numpy"} - offered
    if lacking:
        raise Wrong(f"no extra for {sorted(lacking)}")


def check_platform(wheel: Path, machine: str) -> None:
    """The wheel's name and content have the platform tag, so that an index accepts it; and auditwheel finds the same
    tag.
    """
    (described,) = (WORK / "content").glob("arraybridged-*.dist-info/WHEEL")
    tags = re.findall(r"^Tag: (\S+)", described.read_text(), re.MULTILINE)
    if [tag.split("-")[-1] for tag in tags] != [f"{PLATFORM}{machine}"]:
        raise Wrong(f"{wheel.name} calls itself {tags}")
    told = run(sys.executable, "-m", "auditwheel", "show", wheel)
    if f'"{PLATFORM}{machine}"' not in told:
        raise Wrong(told)


def install_numpy(python: Path) -> None:
    """Installs the NumPy that we build against, from the cache of deploy/setup, or with pip if there is none."""
    numpy = "numpy==" + run(sys.executable, "-c", "import numpy; print(numpy.__version__)").strip()
    uv = Path(sys.executable).with_name("uv")
    try:
        run(uv, "pip", "install", "-q", "--python", python, "--offline", numpy)
    except Wrong:
        run(sys.executable, "-m", "pip", "--python", python, "install", "-q", numpy)


def check_installed(wheel: Path) -> None:
    """In an environment with NumPy only and without a compiler: two processes, with the daemon of the wheel."""
    home = WORK / "venv"
    run("/usr/bin/python3", "-m", "venv", home)
    install_numpy(home / "bin" / "python")
    os.environ["PATH"] = str(home / "bin")  # for every process that starts from here on
    found = [name for name in COMPILERS if shutil.which(name)]
    if found:
        raise Wrong(f"{found} are there: what pip does would not show that it needs none")
    run(home / "bin" / "pip", "install", "-q", "--no-index", wheel)
    version = wheel.name.split("-")[1]
    said = run(home / "bin" / "python", "-I", "-c", "import arraybridge; print(arraybridge.__version__)").strip()
    if said != version:
        raise Wrong(f"arraybridge.__version__ is {said}, not {version}")
    run(home / "bin" / "arraybridged", "--version")
    run(home / "bin" / "arraybridgectl", "--help")
    with tempfile.TemporaryDirectory(prefix="arraybridge-") as sockets:  # short, because a socket's path has at most 107 bytes
        hand_over(home / "bin", sockets)


def hand_over(executables: Path, sockets: str) -> None:
    python = executables / "python"
    ready, tell = os.pipe()
    armed = {**os.environ, "ARRAYBRIDGE_FAILPOINT": "frame_read:abort"}  # which ends the daemon of the dev preset
    daemon = subprocess.Popen([executables / "arraybridged", "--directory", sockets, "--ready-fd", str(tell)],
                              pass_fds=[tell], env=armed)  # fmt: skip
    os.close(tell)
    try:
        with os.fdopen(ready, "rb") as pipe:
            if pipe.readline() != b"ready\n":
                raise Wrong("the daemon of the wheel did not become ready")
        producer = subprocess.Popen([python, "-I", "-c", PRODUCER, sockets],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
        if producer.stdout is None or producer.stdout.readline() != b"put\n":
            raise Wrong("the producer could not put")
        run(python, "-I", "-c", CONSUMER, sockets)
        producer.communicate()
    finally:
        daemon.terminate()
        daemon.wait()


def main() -> int:
    try:
        wheel = build_or_take(sys.argv[1:])
        machine = machine_of(wheel)
        check_content(wheel)
        package = WORK / "content" / "arraybridge"
        check_extension(next(package.glob("_core*.so")), machine)
        check_executables(package / "bin", machine)
        check_extras(WORK / "content")
        check_platform(wheel, machine)
        if machine == platform.machine():
            check_installed(wheel)
    except Wrong as wrong:
        print(wrong)
        return 1
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
