# SPDX-License-Identifier: Apache-2.0
"""The daemon under the restrictions of the shipped unit: fault 40. `pytest --hardened` runs other tests of this folder with them.

A system call that the unit forbids kills the daemon, so that a test that needs it fails.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hardened
import pytest
from harness import DAEMON, PATIENCE_S, SANITIZED, Daemon, Ledger, daemon_in, eventually

MIB = 1 << 20
# Settings of the unit that are no restrictions, and those that hardened.py says it does not carry out.
OTHERS = {
    "Type", "ExecStartPre", "ExecStart", "ExecReload", "Restart", "TimeoutStopSec", "WatchdogSec", "LimitMEMLOCK", "OOMScoreAdjust",
    "Environment", "FileDescriptorStoreMax", "RestartSec",  # of the store and its daemons: test_keeper.py
    "RemoveIPC", "User", "Group", "DevicePolicy", "DeviceAllow", "IPAddressDeny", "IPAddressAllow",
}  # fmt: skip


@pytest.fixture(autouse=True)
def possible() -> None:
    if (reason := hardened.why_not()) is not None:
        pytest.skip(reason)
    if SANITIZED:
        pytest.skip("a sanitizer makes system calls that the unit forbids")


@pytest.fixture
def restricted(tmp_path: Path) -> Iterator[Daemon]:
    directory = tmp_path / "restricted"
    with daemon_in(directory, prefix=hardened.prefix(directory)) as running:
        yield running


def run(tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Python code in the daemon's place."""
    command = [*hardened.prefix(tmp_path), sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def test_every_setting_of_the_unit_is_known() -> None:
    """A restriction that is added to the unit must be added here, too, or be named as one that cannot be tested."""
    assert hardened.Unit().names() == hardened.CARRIED_OUT | OTHERS


def test_the_restrictions_are_in_force(restricted: Daemon) -> None:
    """Fault 40: what the kernel says of the daemon's process."""
    ledger = Ledger(restricted)
    status = dict(line.split(":", 1) for line in Path(f"/proc/{restricted.pid}/status").read_text().splitlines())
    assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2"
    for capabilities in ("CapBnd", "CapEff", "CapPrm", "CapAmb"):
        assert int(status[capabilities], 16) == 0, capabilities
    mounts = {}
    for line in Path(f"/proc/{restricted.pid}/mountinfo").read_text().splitlines():
        fields = line.split()
        mounts[fields[4]] = fields[5].split(",")[0]
    assert mounts["/"] == mounts["/proc"] == "ro"
    assert mounts[str(restricted.directory)] == "rw"
    ledger.settle()


@pytest.mark.parametrize(
    ("code", "number"),
    [
        ("import mmap; mmap.mmap(-1, 4096, prot=7)", "PermissionError"),
        ("import ctypes, mmap; m = mmap.mmap(-1, 4096); p = ctypes.addressof(ctypes.c_char.from_buffer(m));"
         "r = ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(p), 4096, 5); assert r == 0, ctypes.get_errno()", "AssertionError: 1"),
        ("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "Address family not supported"),
        ("open('/usr/written', 'w')", "Read-only file system"),
        ("open('/proc/sys/kernel/hostname', 'w')", "Read-only file system|PermissionError"),
        ("import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == 0", "AssertionError"),
        ("import os; os.chmod('.', 0o4700)", "PermissionError|Read-only"),
        ("import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))", "PermissionError"),
    ],
)  # fmt: skip
def test_what_the_unit_forbids_is_refused(tmp_path: Path, code: str, number: str) -> None:
    """Otherwise the tests here would show nothing."""
    done = run(tmp_path, code)
    assert done.returncode == 1 and re.search(number, done.stderr), done.stderr


@pytest.mark.parametrize("call", ["mount(0, 0, 0, 0, 0)", "ptrace(0, 0, 0, 0)", "adjtimex(0)", "sethostname(0, 0)"])
def test_a_forbidden_call_kills_the_process(tmp_path: Path, call: str) -> None:
    done = run(tmp_path, f"import ctypes; ctypes.CDLL(None).{call}")
    assert done.returncode == -signal.SIGSYS, done


def test_a_restricted_daemon_serves(restricted: Daemon, messages: Any) -> None:
    """Fault 40: all verbs of both doors, memory of all sizes, sealed shares, waiting, and death of clients."""
    grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
    import foreign_v1.broker_pb2_grpc as service

    ledger = Ledger(restricted)
    writer, reader, victim = (restricted.client() for _ in range(3))
    for size in (8, 4096, MIB, 64 * MIB):
        writer.ask(f"put a/{size} {size} {size}")
        reader.ask(f"get a/{size} {size}")
    writer.ask("put sealed 65536 5 sealed")
    reader.ask("get sealed 5 private")
    reader.ask("scribble")
    reader.ask("check")
    reader.tell("get later 6 wait 60000")
    eventually("it waits", lambda: restricted.stats()["waiting"] == 1)
    writer.ask("tree later 65536 6 3")
    reader.answer()
    reader.ask("open frames receive")
    writer.ask("open frames send")
    for number in range(50):
        writer.ask(f"send frames 65536 {number} 60000")
        assert reader.ask("receive frames 60000").split()[2] == str(number)
    for role, client in (("receive", reader), ("send", writer)):
        client.ask(f"close frames {role}")
    victim.ask("get later 6")
    victim.ask("place 65536")
    victim.kill()
    with grpc.insecure_channel(f"unix:{restricted.directory}/broker.sock", [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = service.BrokerStub(channel)
        assert stub.GetServerInfo(messages.GetServerInfoRequest()).devices[0].capacity_bytes > 0
    reader.ask("drop")
    for name in writer.ask("list").split():
        writer.ask(f"withdraw {name}")
    reader.leave()
    writer.leave()
    ledger.settle()
    assert os.listdir(f"/proc/{restricted.pid}/root{restricted.directory}")


REFUSING = """
import os, sys
sys.path.insert(0, {folder!r})
from hardened import Filter
filter = Filter(Filter.ALLOW)
filter.add(Filter.error({number}), "memfd_create")
filter.load()
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_a_daemon_that_may_make_no_shared_memory_says_what_refuses_it(tmp_path: Path, number: int) -> None:
    code = REFUSING.format(folder=str(Path(__file__).parent), number=number)
    command = [sys.executable, "-c", code, str(DAEMON), "--directory", str(tmp_path / "broker")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert f"memfd_create: {os.strerror(number)}: a seccomp filter refuses it" in done.stderr
    assert "permit memfd_create" in done.stderr
