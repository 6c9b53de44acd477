# SPDX-License-Identifier: Apache-2.0
"""A Ray cluster in this process tree: raylets that each have a broker of their own, and the ledger that ends every test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import PACKAGE_PARENT, daemons_of, start_daemon, stop_daemon

import arraybridge

# Of the raylets and their workers.
os.environ.update(
    {
        "RAY_AUTH_MODE": "disabled",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_prestart_worker_first_driver": "0",  # four processes of each node, of which tests use one
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONPATH": os.pathsep.join([PACKAGE_PARENT, str(Path(__file__).parent)]),
    }
)
PATIENCE_S = 120.0  # a watchdog against hangs, not a limit on speed
STORE_BYTES = 300 << 20  # of each raylet
GRACE_S = 2  # orphan_grace of the brokers


def eventually(what: str, test: Callable[[], Any]) -> Any:
    """Repeats the query until the answer is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := test()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)
    return answer


class Node:
    """A raylet with a broker. Tasks that ask for the resource `name` run here."""

    def __init__(self, cluster: Any, name: str, kept: bool) -> None:
        self.name = name
        self.directory = tempfile.mkdtemp(prefix=f"ab-{name}-")
        self.flags = ["--log-level", "warn", "--orphan-grace", f"{GRACE_S}s", *(["--keeper"] if kept else [])]
        self.daemon = start_daemon(self.directory, *self.flags)
        os.environ["ARRAYBRIDGE_ADDRESS"] = self.directory
        self.raylet = cluster.add_node(num_cpus=4, object_store_memory=STORE_BYTES, resources={name: 100}, include_dashboard=False)
        self.broker = arraybridge.Broker(self.directory, start="never")

    @property
    def id(self) -> str:
        return str(self.raylet.node_id)

    def left(self) -> tuple[int, int]:
        """The shares and leases in its broker."""
        stats = self.broker.stats()
        return stats["shares"], stats["leases"]

    def restart(self) -> None:
        """Kills the broker, with all that it has, and starts another one."""
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = start_daemon(self.directory, *self.flags)

    def close(self) -> None:
        self.broker.close()
        stop_daemon(self.daemon)


class Nodes:
    """Nodes "a", where the driver is, "b" and so on."""

    def __init__(self, count: int, kept: bool = False) -> None:
        """kept: the brokers have keepers, so that they can be killed."""
        import ray
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        self.all = [Node(self.cluster, "abcdef"[number], kept) for number in range(count)]
        os.environ["ARRAYBRIDGE_ADDRESS"] = self.all[0].directory
        ray.init(address=self.cluster.address, log_to_driver=False)

    def __getitem__(self, name: str) -> Node:
        return next(node for node in self.all if node.name == name)

    def leave_nothing(self) -> None:
        """Waits until no share and no lease is left in any broker."""
        try:
            eventually("no share and no lease is left", lambda: all(node.left() == (0, 0) for node in self.all))
        except AssertionError as error:
            raise AssertionError({node.name: [node.left(), *node.broker.list()] for node in self.all}) from error

    def close(self) -> None:
        import ray

        import arraybridge.integrations.ray as abr

        abr.stop()
        ray.shutdown()
        self.cluster.shutdown()
        for node in self.all:
            node.close()


def ray_start(where: list[str], address: str, name: str, *, cpus: int = 4, store: int = STORE_BYTES) -> list[str]:
    """The command that starts a raylet. where: --head and its options, or the --address to join; name: as of Node."""
    return [
        str(Path(sys.executable).parent / "ray"), "start", *where, "--node-ip-address", address, "--num-cpus", str(cpus),
        "--object-store-memory", str(store), "--resources", json.dumps({name: 100}), "--disable-usage-stats",
    ]  # fmt: skip


def head_options(port: int, folder: str) -> list[str]:
    """`where` of the first raylet. folder: for its sockets and logs, short."""
    return ["--head", "--port", str(port), "--temp-dir", folder, "--include-dashboard", "false"]


def kill_daemon(directory: str) -> None:
    """Kills the daemon, below its keeper if it has one."""
    for process in daemons_of(directory):
        subprocess.run(["kill", "-KILL", str(process)], check=True)
