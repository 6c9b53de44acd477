# SPDX-License-Identifier: Apache-2.0
"""Hosts of a test: network namespaces of this machine, each with an address of its own, joined by a bridge. Needs root and `ip`."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

_count = itertools.count()


class Host(NamedTuple):
    namespace: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """Of a command that runs on this host."""
        return ["ip", "netns", "exec", self.namespace]

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """A program on this host."""
        return subprocess.Popen([*self.prefix, *words], **options)


def why_not() -> str:
    """Why this machine can have no such hosts; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the program ip (package iproute2)"
    name = f"ab-try-{os.getpid()}"
    tried = subprocess.run(["ip", "link", "add", name[:14], "type", "bridge"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"this machine makes no network namespaces joined by a bridge: {tried.stderr.strip()}"
    subprocess.run(["ip", "link", "del", name[:14]], check=True)
    return ""


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Hosts 10.203.0.1 and so on; they, and what runs there, end with the block."""
    tag = f"{os.getpid():x}{next(_count)}"  # the links of a namespace go some time after it
    bridge = f"ab{tag}"
    made = [Host(f"ab-{tag}-{number}", f"10.203.0.{number}") for number in range(1, count + 1)]
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for number, host in enumerate(made, start=1):
            inside, outside = f"i{tag}{number}", f"o{tag}{number}"
            _ip("netns", "add", host.namespace)
            _ip("link", "add", inside, "type", "veth", "peer", "name", outside)
            _ip("link", "set", inside, "netns", host.namespace)
            _ip("link", "set", outside, "master", bridge)
            _ip("link", "set", outside, "up")
            _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", inside)
            _ip("-n", host.namespace, "link", "set", inside, "up")
            _ip("-n", host.namespace, "link", "set", "lo", "up")
        yield made
    finally:
        for host in made:
            found = subprocess.run(["ip", "netns", "pids", host.namespace], capture_output=True, text=True, check=False)
            for process in found.stdout.split():
                subprocess.run(["kill", "-KILL", process], check=False)
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
