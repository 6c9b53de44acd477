# SPDX-License-Identifier: Apache-2.0
"""Runs a command under the restrictions of deploy/systemd/arraybridged.service, without systemd.

hardened.py DIRECTORY COMMAND ...: DIRECTORY, the daemon's, stays writable. The unit file says what is restricted; this
program carries it out as systemd.exec(5) describes it, with the lists of `systemd-analyze syscall-filter`. Not carried
out: User=, because the tests' clients share the daemon's user, and what needs control groups (DevicePolicy=, IPAddress*=).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import functools
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

UNIT = Path(__file__).resolve().parents[2] / "deploy/systemd/arraybridged.service"
# Settings that Restrictions and Filters carry out; test_hardened.py compares them with the unit.
CARRIED_OUT = {
    "CapabilityBoundingSet", "AmbientCapabilities", "NoNewPrivileges", "ProtectSystem", "ReadWritePaths", "ProtectHome", "PrivateTmp",
    "PrivateMounts", "ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules",
    "ProtectKernelTunables", "ProtectProc", "LockPersonality", "MemoryDenyWriteExecute", "RestrictAddressFamilies",
    "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "SystemCallArchitectures", "SystemCallFilter", "LimitNOFILE", "UMask",
}  # fmt: skip

libc = ctypes.CDLL(None, use_errno=True)


class Unit:
    """The settings of the unit's [Service] section; a setting may occur several times."""

    def __init__(self, path: Path = UNIT) -> None:
        section = path.read_text().split("[Service]", 1)[1].split("[Install]")[0]
        self.lines = [line.split("=", 1) for line in section.splitlines() if "=" in line and not line.startswith("#")]

    def names(self) -> set[str]:
        return {name for name, _ in self.lines}

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.lines if each == name]

    def yes(self, name: str) -> bool:
        return self.all(name)[-1:] in (["yes"], ["true"])


def checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


@functools.cache
def syscall_sets() -> dict[str, list[str]]:
    """systemd's named sets of system calls, as it prints them."""
    text = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    sets: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("@"):
            sets[line] = members = []
        elif line.startswith("    ") and not line.strip().startswith("#"):
            members.append(line.strip())
    return sets


def members(name: str) -> Iterator[str]:
    """The system calls of a set, or the one of this name."""
    if not name.startswith("@"):
        yield name
        return
    for member in syscall_sets()[name]:
        yield from members(member)


class Comparison(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


class Filter:
    """One seccomp filter of this thread and of what it executes, by libseccomp."""

    KILL, ALLOW = 0x80000000, 0x7FFF0000
    EQUAL, GREATER_OR_EQUAL, MASKED_EQUAL = 4, 5, 7  # enum scmp_compare

    def __init__(self, default: int) -> None:
        self.library = ctypes.CDLL("libseccomp.so.2")
        self.library.seccomp_init.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.library.seccomp_init(ctypes.c_uint32(default)))
        assert self.context.value, "no filter can be made"

    @staticmethod
    def error(number: int) -> int:
        return 0x00050000 | number

    def add(self, action: int, call: str, *comparisons: tuple[int, int, int, int]) -> None:
        """Calls that this architecture does not have are passed over."""
        number = self.library.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            return
        array = (Comparison * max(len(comparisons), 1))(*(Comparison(*each) for each in comparisons))
        result = self.library.seccomp_rule_add_array(self.context, ctypes.c_uint32(action), number, len(comparisons), array)
        assert result in (0, -errno.EEXIST), f"{call}: {os.strerror(-result)}"

    def load(self) -> None:
        result = self.library.seccomp_load(self.context)
        assert result == 0, os.strerror(-result)


def load_allowed_calls(unit: Unit) -> None:
    """SystemCallFilter=: a call that is not allowed kills the process."""
    allowed = set(members("@default"))
    for value in unit.all("SystemCallFilter"):
        named = {call for name in value.lstrip("~").split() for call in members(name)}
        allowed = allowed - named if value.startswith("~") else allowed | named
    calls = Filter(Filter.KILL)
    for call in sorted(allowed):
        calls.add(Filter.ALLOW, call)
    calls.load()


def load_refused_arguments(unit: Unit) -> None:
    """The settings that refuse a call by its arguments, with an error."""
    refused, denied = Filter(Filter.ALLOW), Filter.error(errno.EPERM)
    if unit.yes("MemoryDenyWriteExecute"):
        write_execute = 2 | 4
        refused.add(denied, "mmap", (2, Filter.MASKED_EQUAL, write_execute, write_execute))
        for call in ("mprotect", "pkey_mprotect"):
            refused.add(denied, call, (2, Filter.MASKED_EQUAL, 4, 4))
        refused.add(denied, "shmat", (2, Filter.MASKED_EQUAL, 0o100000, 0o100000))
    families = unit.all("RestrictAddressFamilies")
    if families:
        import socket

        known = {int(getattr(socket, name)) for name in families[-1].split()}
        for family in range(socket.AF_UNSPEC, 64):
            if family not in known:
                refused.add(Filter.error(errno.EAFNOSUPPORT), "socket", (0, Filter.EQUAL, family, 0))
        refused.add(Filter.error(errno.EAFNOSUPPORT), "socket", (0, Filter.GREATER_OR_EQUAL, 64, 0))
    if unit.yes("RestrictNamespaces"):
        for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
            for call in ("unshare", "clone"):
                refused.add(denied, call, (0, Filter.MASKED_EQUAL, flag, flag))
        refused.add(Filter.error(errno.ENOSYS), "clone3")
        refused.add(denied, "setns")
    if unit.yes("RestrictRealtime"):
        for policy in (1, 2, 6):  # FIFO, RR, DEADLINE
            refused.add(denied, "sched_setscheduler", (1, Filter.EQUAL, policy, 0))
    if unit.yes("RestrictSUIDSGID"):
        for bit in (stat.S_ISUID, stat.S_ISGID):
            for call, argument in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("mkdir", 1), ("mkdirat", 2), ("creat", 1)):
                refused.add(denied, call, (argument, Filter.MASKED_EQUAL, bit, bit))
    if unit.yes("LockPersonality"):
        refused.add(denied, "personality")
    refused.load()


class Mounts:
    """The private view of the file system."""

    BIND, PRIVATE, RECURSIVE = 0x1000, 1 << 18, 0x4000
    NEW_MOUNTS, NEW_HOSTNAME = 0x00020000, 0x04000000
    MOUNT_SETATTR = 442  # the same on all architectures
    WORKING_DIRECTORY, RECURSIVELY, READ_ONLY = -100, 0x8000, 1

    @staticmethod
    def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
        result = libc.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode())
        checked(result, f"mount {source} at {target}")

    @classmethod
    def set_read_only(cls, path: str, read_only: bool) -> None:
        """The mount at `path`; if read-only, those below it too."""
        attributes = (ctypes.c_uint64 * 4)(*((cls.READ_ONLY, 0) if read_only else (0, cls.READ_ONLY)), 0, 0)
        flags = cls.RECURSIVELY if read_only else 0
        result = libc.syscall(cls.MOUNT_SETATTR, cls.WORKING_DIRECTORY, path.encode(), flags, attributes, ctypes.sizeof(attributes))
        checked(result, f"mount_setattr {path}")

    @classmethod
    def arrange(cls, unit: Unit, directory: Path, program: Path) -> None:
        checked(libc.unshare(cls.NEW_MOUNTS | cls.NEW_HOSTNAME), "unshare")
        cls.mount("none", "/", "none", cls.PRIVATE | cls.RECURSIVE)
        hidden = (["/tmp", "/var/tmp"] if unit.yes("PrivateTmp") else []) + (["/home", "/root"] if unit.yes("ProtectHome") else [])
        hidden = [folder for folder in hidden if Path(folder).is_dir()]
        # A checkout may lie in a hidden folder, of which an installed daemon needs nothing.
        needed = [each for each in (Path(__file__).resolve().parents[2], program.parent) if any(map(each.is_relative_to, hidden))]
        kept = [(each, os.open(each, os.O_PATH)) for each in (*needed, directory)]
        for folder in hidden:
            cls.mount("tmpfs", folder, "tmpfs")
        for each, descriptor in kept:
            each.mkdir(parents=True, exist_ok=True)
            cls.mount(f"/proc/self/fd/{descriptor}", str(each), "none", cls.BIND)
            os.close(descriptor)
        if unit.all("ProtectProc") == ["invisible"]:
            cls.mount("proc", "/proc", "proc", data="hidepid=invisible")
        if unit.all("ProtectSystem") == ["strict"]:
            cls.set_read_only("/", True)
            cls.set_read_only(str(directory), False)
            for folder in hidden:
                cls.set_read_only(folder, False)


def drop_capabilities() -> None:
    """CapabilityBoundingSet=, AmbientCapabilities=: none is left, also after an exec by root."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        checked(libc.prctl(24, capability, 0, 0, 0), "PR_CAPBSET_DROP")
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    checked(libc.capset(header, (ctypes.c_uint32 * 6)()), "capset")


def why_not() -> str | None:
    """Why a command cannot be restricted here; None: it can."""
    if os.geteuid() != 0:
        return "only root can mount file systems and give capabilities up"
    if shutil.which("systemd-analyze") is None:
        return "systemd-analyze, which knows the sets of system calls, is not installed"
    if ctypes.util.find_library("seccomp") is None:
        return "libseccomp is not installed"
    return None


def prefix(directory: Path) -> list[str]:
    """Restricts the command that follows, whose directory this is."""
    return [sys.executable, str(Path(__file__).resolve()), str(directory)]


def restrict(directory: Path, program: Path) -> None:
    unit = Unit()
    syscall_sets()  # before the calls that it needs are refused
    (descriptors,) = map(int, unit.all("LimitNOFILE"))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(descriptors, hard), min(descriptors, hard)))
    os.umask(int(unit.all("UMask")[0], 8))
    Mounts.arrange(unit, directory, program)
    if unit.all("CapabilityBoundingSet") == [""] and unit.all("AmbientCapabilities") == [""]:
        drop_capabilities()
    if unit.yes("NoNewPrivileges"):
        checked(libc.prctl(38, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    load_refused_arguments(unit)
    load_allowed_calls(unit)


def main() -> None:
    directory, *command = sys.argv[1:]
    restrict(Path(directory).resolve(), Path(command[0]).resolve())
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
