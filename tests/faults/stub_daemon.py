# SPDX-License-Identifier: Apache-2.0
"""Takes the place of the daemon below a keeper, and does what its plan says; writes down what it was started with.

The plan is a file of lines beside this one: a word and its values. Each life executes the line of its number, the last
line also in all later lives.
"""

from __future__ import annotations

import array
import fcntl
import gzip
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[0]).resolve().parent
MANAGER = socket.socket(fileno=os.dup(int(os.environ["NOTIFY_SOCKET"].removeprefix("fd:"))))


def tell(text: str, *descriptors: int) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    MANAGER.sendmsg([text.encode()], rights)


def barrier() -> None:
    ours, theirs = os.pipe()
    tell("BARRIER=1", theirs)
    os.close(theirs)
    poll = select.poll()
    poll.register(ours, 0)
    poll.poll()
    os.close(ours)


def obey(word: str, *values: str) -> None:
    assert word in ("wait", "await", "die", "fill", "store", "lines", "connect", "remove", "adopt"), word
    if word == "await":
        while not (FOLDER / values[0]).exists():
            time.sleep(0.01)
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "fill":  # as many entries as the keeper takes
        memory = os.memfd_create("stub")
        os.write(memory, b"filled")
        for number in range(int(os.environ["FDSTORE"]) - int(os.environ["LISTEN_FDS"])):
            tell(f"FDSTORE=1\nFDNAME=a{number:x}\nFDPOLL=0", memory)
        barrier()
    if word == "store":  # the same memory under each name
        memory = os.memfd_create("stub")
        for name in values:
            tell(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", memory)
    if word == "adopt":  # NAME SIZE FILE: memory with the bytes of a compressed file in front, as a daemon has stored it
        name, size, file = values
        memory = os.memfd_create("stub", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, int(size))
        os.pwrite(memory, gzip.decompress(Path(file).read_bytes()), 0)
        future_write = 0x10 if name[0] == "a" else 0  # F_SEAL_FUTURE_WRITE: an arena from which something is published
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | future_write)
        tell(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", memory)
        barrier()
    if word == "lines":  # two connections whose other ends close with this process
        for name, extra in (("l1", ""), ("q1", "\nFDPOLL=0")):
            one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            other_ends.append(other)
            tell(f"FDSTORE=1\nFDNAME={name}{extra}", one.fileno())
            barrier()
    if word == "connect":  # stores a connection to the test's socket, as that of a client
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.connect(str(FOLDER / "peer"))
        tell(f"FDSTORE=1\nFDNAME={values[0]}", line.fileno())
        barrier()
    if word == "remove":
        for name in values:
            tell(f"FDSTOREREMOVE=1\nFDNAME={name}")
        barrier()


other_ends: list[socket.socket] = []

names = os.environ["LISTEN_FDNAMES"].split(":")
first = os.pread(3 + names.index("a0"), 6, 0).decode() if "a0" in names else ""
told = {"names": names, "count": int(os.environ["LISTEN_FDS"]), "ours": int(os.environ["LISTEN_PID"]) == os.getpid(), "a0": first}
lives = FOLDER / "lives"
with lives.open("a") as file:
    file.write(json.dumps(told) + "\n")
number = len(lives.read_text().splitlines()) - 1
plan = (FOLDER / "plan").read_text().splitlines()
for step in plan[min(number, len(plan) - 1)].split(";"):
    obey(*step.split())
tell("READY=1")
signal.sigwait({signal.SIGTERM})
