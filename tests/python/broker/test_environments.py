# SPDX-License-Identifier: Apache-2.0
"""Environments of one framework each, as different services have them: put here, got there, by 16 threads at a time."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import environments
import pytest
from processes import FRAMEWORKS, environment, start_daemon, stop_daemon

import arraybridge
from arraybridge.commands import samples

PROGRAM = Path(__file__).with_name("environment_client.py")
ROUNDS = 1000 if os.environ.get("ARRAYBRIDGE_LONG") else 10


FURTHER = ("pyclesperanto", "pyarrow")  # where they are, and pyclesperanto has a device


@pytest.fixture(scope="module")
def interpreters() -> Iterator[dict[str, Path]]:
    """Of an environment of its own for each framework."""
    for framework in FRAMEWORKS:
        pytest.importorskip(framework, reason=f"{framework} is not installed")
    names = [*FRAMEWORKS, *samples.installed(FURTHER)]
    with tempfile.TemporaryDirectory(prefix="ab-") as folder:
        yield {framework: environments.made(framework, Path(folder, framework)) for framework in names}


def test_nobody_is_left_out(interpreters: dict[str, Path]) -> None:
    if missing := {*FRAMEWORKS, *FURTHER} - set(interpreters):
        pytest.skip(f"not installed, or without a device: {sorted(missing)}")


def started(interpreter: Path, *words: str) -> "subprocess.Popen[str]":
    # -I: nothing of this process's environment is on its path.
    return subprocess.Popen(
        [interpreter, "-I", "-X", "faulthandler", str(PROGRAM), *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        cwd=tempfile.gettempdir(),
    )  # fmt: skip


def test_every_framework_apart_and_the_ledger_is_at_zero_afterwards(interpreters: dict[str, Path]) -> None:
    with tempfile.TemporaryDirectory(prefix="ab-") as address:
        daemon = start_daemon(address, "--log-level", "warn")
        names = ",".join(interpreters)
        clients = {
            (verb, name): started(interpreter, verb, name, address, str(ROUNDS), names)
            for verb in ("put", "get")
            for name, interpreter in interpreters.items()
        }
        said = {who: client.stdout.readline() for who, client in clients.items()}  # type: ignore[union-attr]
        ends = {who: (*client.communicate(), client.returncode) for who, client in clients.items()}
        for who, (_, errors, status) in ends.items():
            assert (said[who], status) == ("ok\n", 0), f"{who}: {errors[-3000:]}"
        with arraybridge.Broker(address, namespace="apart", start="never") as broker:
            for listed in broker.list():
                listed.share.withdraw()
            broker.flush()
            deadline = time.monotonic() + 60
            # Memory goes back on a thread of the daemon's own, after the names.
            while (stats := broker.stats())["charged_bytes"] and time.monotonic() < deadline:
                time.sleep(0.01)
        assert {name: stats[name] for name in ("shares", "withdrawn_shares", "leases", "tickets", "waiting")} == {
            "shares": 0, "withdrawn_shares": 0, "leases": 0, "tickets": 0, "waiting": 0,
        }  # fmt: skip
        assert stats["sessions"] == 1 and stats["arenas"] == 0 and stats["charged_bytes"] == 0
        assert stop_daemon(daemon) == 0
