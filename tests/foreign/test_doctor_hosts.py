# SPDX-License-Identifier: Apache-2.0
"""The output of arraybridgectl doctor for other hosts: in a separate mount namespace, files of another kernel, control group
or machine replace those of this host."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from foreign_client import CTL

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
GAINS = {
    (5, 14): "memory populated ahead of demand (5.14)",
    (6, 1): "huge pages independent of shmem_enabled (6.1)",
    (6, 7): "private mappings kept between two gets (6.7)",
}
Findings = dict[str, dict[str, str]]


def findings(prefix: Sequence[str] = ()) -> Findings:
    """Findings about this host, by a tool that finds no broker."""
    done = subprocess.run([*prefix, str(CTL), "-H", "/nonexistent", "-o", "json", "doctor"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr  # the missing broker is a problem
    return {finding["what"]: finding for finding in json.loads(done.stdout)}


def findings_after(script: str, prefix: Sequence[str] = ()) -> Findings:
    """Findings about a host that a shell script has modified."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("a mount namespace needs root")
    return findings(["unshare", "--mount", "sh", "-ec", script + '\nexec "$@"', "sh", *prefix])


def test_an_old_kernel_lacks_something() -> None:
    version = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2]))
    lacks = [what for since, what in GAINS.items() if version < since]
    kernel = findings()["kernel"]
    said = "Linux " + ".".join(map(str, version))
    assert kernel["health"] == ("note" if lacks else "ok")
    assert kernel["finding"] == (f"{said} lacks {', '.join(lacks)}" if lacks else said)
    old = findings(["setarch", "--uname-2.6"])["kernel"]
    assert old["health"] == "note" and old["finding"] == f"Linux 2.6 lacks {', '.join(GAINS.values())}"


@pytest.mark.parametrize(
    ("line", "health", "said", "mends"),
    [
        ("always within_size [advise] never deny force", "ok", "shared memory: advise", False),
        ("[always] within_size advise never deny force", "ok", "shared memory: always", False),
        ("always within_size advise [never] deny force", "ok", "shared memory: never; a broker makes its own", False),
        ("always within_size advise never [deny] force", "note", "denied to shared memory", True),
        ("", "note", "this kernel has no huge pages", None),
        ("always ] never [", "note", "this kernel has no huge pages", None),
    ],
)
def test_huge_pages_of_shared_memory(tmp_path: Path, line: str, health: str, said: str, mends: bool | None) -> None:
    """`mends` is None: no command is a remedy, and the output says so."""
    setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
    if not Path(setting).exists():
        pytest.skip("this kernel does not support huge pages of shared memory")
    (tmp_path / "line").write_text(line + "\n")
    pages = findings_after(f"mount --bind {shlex.quote(str(tmp_path / 'line'))} {setting}")["huge pages"]
    assert pages["health"] == health and pages["finding"].startswith(said)
    if mends is None:
        assert pages["mend"].startswith("no command: ")
    else:
        assert pages.get("mend", "") == (f"echo advise | sudo tee {setting}" if mends else "")


MEMORY_MAX = {"memory.max": 1 << 30, "memory.current": 256 << 20}


@pytest.mark.parametrize(
    ("group", "files", "health", "said"),
    [
        ("0::/a/b", MEMORY_MAX, "ok", "this control group may use 1 GiB, 256 MiB in use"),
        ("0::/a/b", {"memory.max": "max", "memory.current": 1}, "ok", "this control group has no limit"),
        ("0::/a/b", {}, "note", "no memory control group is visible"),
        (
            "3:cpu:/c\n4:memory:/a/b\n0::/",
            {"memory.limit_in_bytes": 1 << 30, "memory.usage_in_bytes": 256 << 20},
            "ok",
            "this control group may use 1 GiB, 256 MiB in use",
        ),
        ("4:memory:/a/b", {"memory.limit_in_bytes": (1 << 63) - 4096}, "ok", "this control group has no limit"),
        ("3:cpu:/c", MEMORY_MAX, "note", "no memory control group is visible"),
    ],
)
def test_the_limit_of_a_control_group(tmp_path: Path, group: str, files: dict[str, object], health: str, said: str) -> None:
    (tmp_path / "cgroup").write_text(group + "\n")
    script = f"mount -t tmpfs tmpfs /sys/fs/cgroup\nmount --bind {shlex.quote(str(tmp_path / 'cgroup'))} /proc/$$/cgroup\n"
    folder = "/sys/fs/cgroup/memory/a/b" if ":memory:" in group else "/sys/fs/cgroup/a/b"
    script += f"mkdir -p {folder}\n" + "".join(f"echo {text} > {folder}/{name}\n" for name, text in files.items())
    limit = findings_after(script)["memory limit"]
    assert limit["health"] == health and limit["finding"].startswith(said)


INSTALL = (
    "where there is an NVIDIA GPU: sudo apt-get install nvidia-driver; for a container: podman run --device nvidia.com/gpu=all, "
    "or docker run --gpus all"
)
NODE = "mount -t tmpfs -o mode=755 tmpfs /dev\n"
DRIVER = "mount -t tmpfs -o mode=755 tmpfs /proc/driver\nmkdir /proc/driver/nvidia\necho NVRM version: 580 > /proc/driver/nvidia/version\n"


@pytest.mark.parametrize(
    ("script", "user", "health", "said", "mend"),
    [
        (NODE, (), "note", "no /dev/nvidiactl", INSTALL),
        (NODE + DRIVER, (), "note", "no /dev/nvidiactl", "sudo nvidia-modprobe -c 0 -u"),
        (NODE + "mknod -m 666 /dev/nvidiactl c 1 3", NOBODY, "ok", "/dev/nvidiactl is accessible", ""),
        (
            NODE + "mknod -m 660 /dev/nvidiactl c 1 3",
            NOBODY,
            "problem",
            "/dev/nvidiactl is not accessible",
            'sudo usermod -aG root "$USER"',
        ),
    ],
)
def test_device_nodes(script: str, user: Sequence[str], health: str, said: str, mend: str) -> None:
    found = findings_after(script, user)
    assert found["device nodes"]["health"] == health and found["device nodes"]["finding"].startswith(said)
    assert found["device nodes"].get("mend", "") == mend
    assert found.get("driver", {}).get("finding") == ("NVRM version: 580" if script.endswith(DRIVER) else None)


def test_limits_of_this_process() -> None:
    found = findings(["prlimit", "--nofile=4096:4096"])
    assert (found["descriptors"]["health"], found["descriptors"].get("mend", "")) == ("ok", "")
    assert found["descriptors"]["finding"] == "a process here may open 4096, at most 4096"
    found = findings(["prlimit", "--nofile=512:1024", f"--as={1 << 40}"])
    assert found["descriptors"]["health"] == "note" and found["descriptors"]["mend"].startswith("LimitNOFILE=65536")
    assert found["address space"]["finding"].startswith("limited to 1 TiB")
    assert findings(["prlimit", "--as=unlimited"])["address space"]["health"] == "ok"
