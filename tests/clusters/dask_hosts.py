"""Two hosts on one machine: network namespaces with an address each. Needs root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import NamedTuple


class Host(NamedTuple):
    address: str
    prefix: list[str]  # of a command that runs there


class NoHosts(Exception):
    """This process may not make network namespaces; the message says why."""


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Removed at the end.

    Raises:
        NoHosts: they cannot be made here.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise NoHosts("network namespaces need root and the command ip")
    number = os.getpid()
    names = [f"ab{number}{side}" for side in "ab"]
    # 198.18.0.0/15 is for tests of networks (RFC 2544).
    addresses = [f"198.18.{number % 250}.{side}" for side in (1, 2)]
    with contextlib.ExitStack() as end:
        for name in names:
            _ip("netns", "add", name)
            end.callback(_ip, "netns", "delete", name)
        _ip("link", "add", names[0], "netns", names[0], "type", "veth", "peer", "name", names[1], "netns", names[1])
        for name, address in zip(names, addresses, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", name)
            _ip("-n", name, "link", "set", name, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        first, second = (Host(address, ["ip", "netns", "exec", name]) for name, address in zip(names, addresses, strict=True))
        yield first, second


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoHosts(f"ip {' '.join(words)}: {done.stderr.strip()}")
