# SPDX-License-Identifier: Apache-2.0
"""Ray on two hosts with addresses of their own, started by `ray start`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray")
from hosts import Host, hosts, why_not
from processes import ROOT, start_daemon, stop_daemon
from ray_cluster import head_options, ray_start

PORT = 6390
COUNT = 1 << 21

# Makes arrays on each host, reads each on both, and reports what the brokers have while they are held and after.
DRIVER = """
import gc, json, sys, time
import numpy as np
import ray
import arraybridge, arraybridge.integrations.ray as abr
from ray_tasks import Holder, made, on, read

ray.init(address=sys.argv[1], log_to_driver=False)
addresses = abr.start()
count = int(sys.argv.pop())
brokers = [arraybridge.Broker(directory) for directory in sys.argv[2:]]
shares = [ray.get(made.options(**on(name)).remote(count)) for name in "ab"]
totals = [ray.get(read.options(**on(name)).remote(share))[0] for share in shares for name in "ab" for _ in range(2)]
plan = str(shares[1].get(explain=True).plan)
held = [len(broker.list()) for broker in brokers]
del shares
gc.collect()
deadline = time.monotonic() + 30
while any(broker.list() or broker.stats()["leases"] for broker in brokers) and time.monotonic() < deadline:
    time.sleep(0.05)
left = [[broker.stats()["shares"], broker.stats()["leases"]] for broker in brokers]
hosts = {each["NodeManagerAddress"] for each in ray.nodes()}
print(json.dumps({"totals": totals, "held": held, "left": left, "plan": plan, "hosts": sorted(hosts), "brokers": sorted(addresses.values())}))
abr.stop()
"""


@pytest.fixture
def two() -> Iterator[list[Host]]:
    if reason := why_not():
        pytest.skip(reason)
    with hosts(2) as made:
        yield made


def start_ray(host: Host, directory: str, mover: str, where: list[str], name: str) -> None:
    """A raylet on this host, with its broker."""
    command = ray_start(where, host.address, name)
    # UCX would read the other process's memory on this machine, which no network permits.
    environment = {**os.environ, "ARRAYBRIDGE_ADDRESS": directory, "ARRAYBRIDGE_MOVER": mover, "UCX_TLS": "tcp"}
    started = host.start(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, _ = started.communicate()
    assert started.returncode == 0, said


@pytest.mark.parametrize("mover", ["store", "nixl"])
def test_two_hosts(two: list[Host], mover: str) -> None:
    if mover == "nixl":
        pytest.importorskip("nixl._api")
    with tempfile.TemporaryDirectory(prefix="ab-") as temp, tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as sessions:
        directories = [f"{temp}/{name}" for name in "ab"]
        for directory in directories:
            Path(directory).mkdir()
        daemons = [start_daemon(directory, "--log-level", "warn", "--orphan-grace", "2s") for directory in directories]
        head = f"{two[0].address}:{PORT}"
        start_ray(two[0], directories[0], mover, head_options(PORT, sessions), "a")
        start_ray(two[1], directories[1], mover, ["--address", head], "b")
        driver = two[0].start(
            [sys.executable, "-c", DRIVER, head, *directories, str(COUNT)],
            env={**os.environ, "ARRAYBRIDGE_ADDRESS": directories[0], "ARRAYBRIDGE_MOVER": mover}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        output, errors = driver.communicate(timeout=120)
        assert driver.returncode == 0, errors
        found = json.loads(output.splitlines()[-1])
        assert found["totals"] == [float(np.arange(COUNT, dtype="f4").sum())] * 8
        assert found["held"] == [2, 2] and found["left"] == [[0, 0], [0, 0]]
        assert f"moved once to this one by {'NIXL' if mover == 'nixl' else 'Ray'}" in found["plan"]
        assert found["hosts"] == [host.address for host in two] and found["brokers"] == directories
        for daemon in daemons:
            assert stop_daemon(daemon) == 0


def test_the_example_of_the_readme() -> None:
    """Stages of NumPy, torch and JAX on two nodes."""
    for framework in "torch", "jax":
        if not importlib.util.find_spec(framework):
            pytest.skip(f"{framework} is not installed")
    environment = {name: value for name, value in os.environ.items() if name != "ARRAYBRIDGE_ADDRESS"}
    # Ended by SIGABRT, it writes where each of its threads is.
    program = ["timeout", "--signal=ABRT", "--kill-after=10", "150", sys.executable, "-X", "faulthandler"]
    program += [str(ROOT / "docs/examples/ray/ray_stages.py"), "--frames", "6"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 answers of 6 frames" in done.stdout and "nothing is left" in done.stdout


def test_the_small_example() -> None:
    """docs/examples/ray/stages.py: actors of NumPy and torch on one node."""
    if not importlib.util.find_spec("torch"):
        pytest.skip("torch is not installed")
    with tempfile.TemporaryDirectory(prefix="ab-") as directory:
        daemon = start_daemon(directory, "--log-level", "warn")
        program = ["timeout", "--signal=ABRT", "--kill-after=10", "150", sys.executable, str(ROOT / "docs/examples/ray/stages.py")]
        environment = {**os.environ, "ARRAYBRIDGE_ADDRESS": directory}
        done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "4 [4.0, 4.0]" in done.stdout
        assert stop_daemon(daemon) == 0
