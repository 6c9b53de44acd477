# SPDX-License-Identifier: Apache-2.0
"""A client that uses only the .proto files: plain grpcio, a plain socket and mmap, without our client library."""

from __future__ import annotations

import array
import contextlib
import importlib
import mmap
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ARRAYBRIDGE_BUILD", ROOT / "build/dev"))
DAEMON = Path(os.environ.get("ARRAYBRIDGE_DAEMON", BUILD / "daemon/arraybridged"))
CTL = Path(os.environ.get("ARRAYBRIDGE_CTL", DAEMON.parents[1] / "client/ctl/arraybridgectl"))
PATIENCE_S = 90.0  # a watchdog against hangs, not a limit on speed

HEADER = struct.Struct("<HHIQ")  # verb, flags, status, request
DESCRIPTORS_MAX = 5  # of one frame
OPEN_SESSION, REDEEM = 1, 12


def generate(folder: Path) -> tuple[Any, Any]:
    """The modules of messages and service, generated from proto/ under a name that no Python package has.

    $ARRAYBRIDGE_FOREIGN_STUBS is a folder with generated modules, for a machine without grpcio-tools.
    """
    ready = os.environ.get("ARRAYBRIDGE_FOREIGN_STUBS")
    if ready is None:
        generate_into(folder)
    sys.path.insert(0, ready or str(folder))
    return importlib.import_module("foreign_v1.broker_pb2"), importlib.import_module("foreign_v1.broker_pb2_grpc")


def generate_into(folder: Path) -> None:
    from grpc_tools import protoc

    source = folder / "proto" / "foreign_v1"
    source.mkdir(parents=True)
    for name in ("array.proto", "born.proto", "tiers.proto", "broker.proto", "admin.proto"):
        text = (ROOT / "proto/arraybridge/v1" / name).read_text()
        (source / name).write_text(text.replace('"arraybridge/v1/', '"foreign_v1/'))
    shutil.copy(Path(__file__).with_name("error_details.proto"), source)
    arguments = ["protoc", f"-I{folder / 'proto'}", f"-I{Path(protoc.__file__).parent / '_proto'}"]
    arguments += [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    assert protoc.main([*arguments, *(f"foreign_v1/{path.name}" for path in source.iterdir())]) == 0


def eventually(what: str, test: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (answer := test()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.005)
    return answer


class Address:
    """The directory of a running daemon."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def channel(self) -> grpc.Channel:
        """Opens a separate connection; grpcio would share one between equal targets."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        return grpc.insecure_channel(f"unix:{self.directory / 'broker.sock'}", options=options)


class Daemon(Address):
    """A real arraybridged in a private directory."""

    def __init__(self, directory: Path, *flags: str, **limits: str):
        super().__init__(directory)
        directory.mkdir(mode=0o700)
        read, write = os.pipe()
        environment = {f"ARRAYBRIDGED_LIMITS__{name.upper()}": value for name, value in limits.items()}
        self.log = directory.with_suffix(".log")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [DAEMON, "--directory", directory, "--ready-fd", str(write), *flags],
                pass_fds=[write],
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )
        os.close(write)
        with os.fdopen(read) as lines:
            assert lines.readline() == "ready\n", self.log.read_text(errors="replace")

    def page(self, path: str) -> str:
        """The address of its HTTP door. The port is in the log. REQUIRES: "--http"."""
        port = re.search(r"http port (\d+)", self.log.read_text())
        assert port is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}{path}") as answer:
            return str(answer.read().decode())

    def kill_below_keeper(self) -> None:
        """Kills the daemon; the keeper starts the next one. REQUIRES: "--keeper"."""
        keeper = self.process.pid
        (pid,) = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        os.kill(int(pid), signal.SIGKILL)

    def terminate(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


class Refused(Exception):
    """An error answer on the lifeline."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Lifeline:
    """The socket that redeems tickets."""

    def __init__(self, daemon: Address, messages: Any, join: bytes = b"", **hello: Any) -> None:
        """Joins the session with this token; without a token it opens a session."""
        self.messages = messages
        self.request = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(daemon.directory / "lifeline.sock"))
        request = messages.OpenSessionRequest(**{"protocol_min": 1, "protocol_max": 1, "client": "foreign", "join": join, **hello})
        self.ask(OPEN_SESSION, request, messages.OpenSessionResponse())

    def ask(self, verb: int, message: Any, answer: Any) -> int | None:
        """The first descriptor of the answer; the caller closes it."""
        self.send(verb, message)
        size = array.array("i").itemsize
        frame, ancillary, _, _ = self.socket.recvmsg(65536, socket.CMSG_SPACE(DESCRIPTORS_MAX * size))
        if not frame:
            raise EOFError("the lifeline was closed")
        answered, _, status, number = HEADER.unpack_from(frame)
        if status != 0:
            raise Refused(status, self.messages.Error.FromString(frame[HEADER.size :]).message)
        assert (answered, number) == (verb, self.request)
        answer.ParseFromString(frame[HEADER.size :])
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            descriptors.frombytes(data)
        for surplus in descriptors[1:]:
            os.close(surplus)
        return descriptors[0] if descriptors else None

    def send(self, verb: int, message: Any) -> None:
        """Sends a request; the caller may read the answer."""
        self.request += 1
        self.socket.send(HEADER.pack(verb, 0, 0, self.request) + message.SerializeToString())

    def redeem(self, ticket: Any) -> tuple[Any, int]:
        answer = self.messages.RedeemResponse()
        descriptor = self.ask(REDEEM, self.messages.RedeemRequest(token=ticket.token), answer)
        assert descriptor is not None
        return answer, descriptor


class Session:
    """An OpenSession stream and the calls that name it."""

    def __init__(self, daemon: Address, messages: Any, service: Any, **hello: Any) -> None:
        self.daemon = daemon
        self.messages = messages
        self.channel = daemon.channel()
        self.stub = service.BrokerStub(self.channel)
        request = messages.OpenSessionRequest(**{"protocol_min": 1, "protocol_max": 1, "client": "foreign", **hello})
        self.stream = self.stub.OpenSession(request, timeout=PATIENCE_S)
        self.opened = next(self.stream).opened
        self.metadata = [("arraybridge-session", self.opened.token.hex())]
        self._lifeline: Lifeline | None = None

    def begin(self, verb: str, timeout: float = PATIENCE_S, **fields: Any) -> Any:
        request = getattr(self.messages, f"{verb}Request")(**fields)
        return getattr(self.stub, verb).future(request, metadata=self.metadata, timeout=timeout)

    def call(self, verb: str, **fields: Any) -> Any:
        return self.begin(verb, **fields).result()

    @property
    def lifeline(self) -> Lifeline:
        if self._lifeline is None:
            self._lifeline = Lifeline(self.daemon, self.messages, self.opened.token)
        return self._lifeline

    def publish(self, name: str, content: bytes, namespace: str = "default", **fields: Any) -> Any:
        """Allocate, redeem, map, close, Mapped, write, Publish: the steps of every producer."""
        allocated = self.call("Allocate", namespace=namespace, size=len(content))
        redeemed, descriptor = self.lifeline.redeem(allocated.ticket)
        assert redeemed.writable
        mapping = mmap.mmap(descriptor, redeemed.handle.arena_size)
        os.close(descriptor)
        self.call("Mapped", arena=redeemed.handle.arena)
        mapping[: len(content)] = content
        spec = {"code": 1, "bits": 8, "lanes": 1, "dtype": "uint8", "shape": [len(content)], "size": len(content)}
        published = self.call(
            "Publish",
            namespace=namespace,
            name=name,
            arena=redeemed.handle.arena,
            arena_generation=redeemed.handle.generation,
            size=len(content),
            specs={"arrays": [spec]},
            **fields,
        )
        return published, mapping

    def read(self, name: str, namespace: str = "default") -> bytes:
        """Acquire, redeem, map read-only, copy, release."""
        acquired = self.call("Acquire", namespace=namespace, shares=[{"name": name}])
        handle = acquired.shares[0].share.handle
        redeemed, descriptor = self.lifeline.redeem(acquired.tickets[0])
        assert not redeemed.writable and redeemed.handle.arena == handle.arena
        try:
            with mmap.mmap(descriptor, handle.arena_size, prot=mmap.PROT_READ) as mapping:
                content = mapping[handle.offset : handle.offset + handle.size]
        finally:
            os.close(descriptor)
        assert self.call("Release", leases=[acquired.shares[0].lease]).released == 1
        return content

    def close(self) -> None:
        if self._lifeline is not None:
            self._lifeline.socket.close()
        self.stream.cancel()
        self.channel.close()


@contextlib.contextmanager
def refused(code: grpc.StatusCode, text: str = "") -> Iterator[dict[str, Any]]:
    """Checks that the call inside is refused with this code and a message that contains this text."""
    seen: dict[str, Any] = {}
    try:
        yield seen
    except grpc.RpcError as error:
        assert isinstance(error, grpc.Call)
        assert error.code() == code, (error.code(), error.details())
        assert text in (error.details() or ""), error.details()
        seen.update(code=error.code(), text=error.details(), trailers=dict(error.trailing_metadata() or ()))
        return
    raise AssertionError(f"was not refused with {code}")
