# SPDX-License-Identifier: Apache-2.0
"""The letters of services, as docs/guides/writing-a-client.md says them: a client over gRPC calls a server in C++, and serves a
caller in C++. It has the messages from client/services/letter.proto, and nothing else of the library.
"""

from __future__ import annotations

import importlib
import mmap
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_client import BUILD, ROOT, Daemon, Session
from test_channels import bytes_of, open_end

PROGRAM = BUILD / "tests/integration/service_program"
CAPACITY = 7  # of the mailbox of one caller, or of one server
WAIT_MS = 60_000
NUMBERS = b"".join((3).to_bytes(8, "little") for _ in range(4))
STRUCTURE = b'{"d":[["n",{"v":3}],["x",0]]}'
SPEC = {"code": 0, "bits": 64, "lanes": 1, "dtype": "int64", "shape": [4], "size": 32}


@pytest.fixture(scope="module")
def letter(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The class of the message Letter."""
    from grpc_tools import protoc

    made = tmp_path_factory.mktemp("letter")
    folder = ROOT / "client/services"
    assert protoc.main(["protoc", f"-I{folder}", f"--python_out={made}", str(folder / "letter.proto")]) == 0
    sys.path.insert(0, str(made))
    return importlib.import_module("letter_pb2").Letter


@pytest.fixture
def program(daemon: Daemon) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(role: str, *words: object) -> subprocess.Popen[str]:
        command = [str(PROGRAM), str(daemon.directory), "default", role, "double", *map(str, words)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


class Box:
    """One end of a channel of the service."""

    def __init__(self, session: Session, letter: Any, role: str, name: str, **fields: Any) -> None:
        self.session, self.letter = session, letter
        self.channel = open_end(session, role, f"service/double/{name}", **fields)
        self.seen = self.channel.seen_notice

    def post(self, content: bytes = b"", spec: Any = None, structure: bytes = b'{"d":[]}', **said: Any) -> None:
        """A letter without arrays has one without elements."""
        specs = {"arrays": [spec or {**SPEC, "code": 1, "bits": 8, "dtype": "uint8", "shape": [0], "size": 0}]}
        allocated = self.session.call("Allocate", namespace="default", size=max(len(content), 1))
        place = self._written(allocated, content)
        fields = {"channel": self.channel.channel, "structure": structure, "metadata": self.letter(**said).SerializeToString()}
        self.session.call("Publish", namespace="default", size=max(len(content), 1), specs=specs, timeout_ms=WAIT_MS, **place, **fields)
        self.session.call("Release", arenas=[place["arena"]])  # it carves nothing from what readers give back

    def _written(self, allocated: Any, content: bytes) -> dict[str, int]:
        redeemed, descriptor = self.session.lifeline.redeem(allocated.ticket)
        with mmap.mmap(descriptor, redeemed.handle.arena_size) as mapping:
            os.close(descriptor)
            self.session.call("Mapped", arena=redeemed.handle.arena)
            mapping[: len(content)] = content
        return {"arena": redeemed.handle.arena, "arena_generation": redeemed.handle.generation}

    def read(self, kind: str) -> tuple[Any, Any]:
        """The next letter, and what came with it."""
        received = self.session.call("Receive", channel=self.channel.channel, timeout_ms=WAIT_MS, seen_notice=self.seen)
        said = self.letter.FromString(received.shares[0].share.metadata)
        assert said.kind == kind
        return said, received


def test_a_client_over_grpc_calls_a_server(session: Session, letter: Any, program: Callable[..., Any], tmp_path: Path) -> None:
    server = program("serve", "double", tmp_path / "record")
    assert server.stdout.readline() == f"open {server.pid}\n"
    me = secrets.token_hex(16)
    answers = Box(session, letter, "RECEIVER", f"answers/{me}", capacity=CAPACITY)
    tickets = Box(session, letter, "SENDER", "tickets")
    due = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 1_000_000 * WAIT_MS
    for number in (1, 2):
        tickets.post(kind="ticket", peer=me, number=number, due_ns=due)
        asked, _ = answers.read("ask")
        assert asked.number == number and not asked.retry
        requests = Box(session, letter, "SENDER", f"requests/{asked.peer}")
        assert requests.channel.capacity == CAPACITY
        if number == 1:  # it does not want the answer any more
            requests.post(kind="no", peer=me, number=number)
            continue
        requests.post(NUMBERS, SPEC, STRUCTURE, kind="go", peer=me, number=number, due_ns=due)
        said, received = answers.read("answer")
        assert (said.number, said.peer) == (number, asked.peer)
        assert received.shares[0].share.structure == STRUCTURE
        assert bytes_of(session, received) == b"".join((6).to_bytes(8, "little") for _ in range(4))
    assert (tmp_path / "record").read_text().splitlines() == [f"3 {server.pid}"]


def test_a_client_over_grpc_serves_a_caller(session: Session, letter: Any, program: Callable[..., Any]) -> None:
    me = secrets.token_hex(16)
    requests = Box(session, letter, "RECEIVER", f"requests/{me}", capacity=CAPACITY)
    Box(session, letter, "SENDER", "presence", mode="CHANNEL_MODE_BROADCAST")
    tickets = Box(session, letter, "RECEIVER", "tickets", capacity=64)
    caller = program("call", 3, 4, WAIT_MS)
    for number in (1, 2):
        ticket, _ = tickets.read("ticket")
        assert ticket.number == number
        answers = Box(session, letter, "SENDER", f"answers/{ticket.peer}")
        answers.post(kind="ask", peer=me, number=number)
        given, received = requests.read("go")
        assert (given.peer, given.number) == (ticket.peer, number) and given.due_ns > 0
        if number == 2:
            answers.post(kind="failed", peer=me, number=number, text="only once")
            continue
        assert bytes_of(session, received) == NUMBERS
        answers.post(NUMBERS, SPEC, STRUCTURE, kind="answer", peer=me, number=number)
    said = caller.communicate()[0].splitlines()
    assert said == ["answer 3 12", "REQUEST_FAILED 4 the server of service 'double' has no result: only once"]
