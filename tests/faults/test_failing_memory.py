# SPDX-License-Identifier: Apache-2.0
"""Allocations of a client that fail, each once and for ever: fault 26. The result is an error, never a crash, a hang or a leak.

The daemon is not tested so: where its heap ends, it ends, as by the kernel's out-of-memory killer, and fault 9 follows.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import BUILD, SANITIZED, Client, Daemon, Ledger, Refused, daemon_in

LONG = bool(os.environ.get("ARRAYBRIDGE_LONG"))
SEED = int(os.environ.get("ARRAYBRIDGE_SEED", random.SystemRandom().randrange(1 << 32)))
SAMPLES = 20
LAST = 16  # allocations of the last commands, which give everything back: each is tried
SESSION = (
    "put a 65536 1", "get a 1", "get a 1 private", "scribble", "put a 65536 2 replace", "drop", "many 2 a", "list", "stats", "flush", "drop",
    "tree t 4096 3 4", "get t 3", "drop", "open CHANNEL receive", "open CHANNEL send", "send CHANNEL 4096 5 2000", "receive CHANNEL 2000",
    "close CHANNEL receive", "close CHANNEL send", "withdraw t", "withdraw a", "flush",
)  # fmt: skip


class Allocations:
    """Controls the allocations of processes in whose environment it is (failing_malloc.cc)."""

    LAYOUT = struct.Struct("=4q")  # seen, fail_at, fail_all, failed

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(bytes(self.LAYOUT.size))
        self.environment = {"LD_PRELOAD": str(BUILD / "tests/faults/libfailing_malloc.so"), "FAILING_MALLOC": str(file)}

    @contextlib.contextmanager
    def failing(self, number: int, all_later: bool) -> Iterator[None]:
        """Counts from now on. 0: none fails."""
        self._write(0, number, int(all_later), 0)
        yield
        self.seen, _, _, self.failed = self.LAYOUT.unpack(self.file.read_bytes())
        self._write(0, 0, 0, 0)

    def _write(self, *numbers: int) -> None:
        with self.file.open("r+b") as file:  # in place, because processes have mapped it
            file.write(self.LAYOUT.pack(*numbers))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A channel without ends awaits its next receiver for a second only."""
    with daemon_in(tmp_path / "broker", "--orphan-grace", "1s") as running:
        yield running


@pytest.fixture
def allocations(tmp_path: Path) -> Allocations:
    if SANITIZED:
        pytest.skip("a sanitizer has an allocator of its own")
    return Allocations(tmp_path / "allocations")


def session(client: Client, channel: str) -> int:
    """The number of commands that were refused. EOFError: the client has died.

    `channel`: one that no session has used, because the end of a stream is told to the next receiver, too.
    """
    refused = 0
    for line in SESSION:
        try:
            client.ask(line.replace("CHANNEL", channel))
        except Refused:
            refused += 1
    return refused


@pytest.mark.parametrize("all_later", [pytest.param(False, id="once"), pytest.param(True, id="for ever")])
def test_allocations_of_a_client_fail(daemon: Daemon, ledger: Ledger, allocations: Allocations, all_later: bool) -> None:
    """Fault 26: each command has an answer; with memory again the same client does everything, and nothing of it stays."""
    print(f"ARRAYBRIDGE_SEED={SEED}")

    def begun() -> Client:
        client = Client(daemon.directory, "default", 10_000, environment=allocations.environment)
        daemon.clients.append(client)
        client.ask("kinds")  # it has allocated what every process does, and has not connected
        return client

    client = begun()
    with allocations.failing(0, False):
        assert session(client, "c") == 0
    client.leave()
    daemon.clients.remove(client)
    assert allocations.seen > 100, "the library counts nothing"
    numbers = range(1, allocations.seen + 1)
    failures = 0
    some = {*random.Random(SEED).sample(numbers, SAMPLES), *numbers[-LAST:]}
    for number in numbers if LONG else sorted(some):
        client = begun()
        with allocations.failing(number, all_later):
            try:
                session(client, f"failing{number}")
            except EOFError as end:
                raise AssertionError(f"allocation {number} ended the client with {client.process.wait()}") from end
        failures += allocations.failed > 0
        for line in ("drop", f"close failing{number} send", f"close failing{number} receive", "flush"):
            with contextlib.suppress(Refused):
                client.ask(line)
        for name in client.insist("list").split():
            client.ask(f"withdraw {name}")
        assert session(client, f"later{number}") == 0, f"after allocation {number} failed"
        client.leave()
        daemon.clients.remove(client)
        ledger.settle()
    assert failures > 0
