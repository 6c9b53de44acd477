# SPDX-License-Identifier: Apache-2.0
"""The program of another user's process: it executes commands from its standard input, at both doors.

Each line is a method of Actor, its arguments and its keywords, pickled and in hex. The answer is its result, or
{"code", "text"} of a refusal; "code" is None if the connection has ended.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import foreign_client
import grpc
from foreign_client import Address, Lifeline, Refused, Session
from google.protobuf import json_format, message_factory

VERBS = {"Claim": 21, "Tier": 22} | {name: number for number, name in enumerate(
    ("OpenSession", "GetServerInfo", "Allocate", "Mapped", "Publish", "Acquire", "Export", "Release", "Withdraw", "List",
     "GetStats", "Redeem", "Browse", "OpenChannel", "CloseChannel", "Receive", "Doorbell", "Watch", "Inspect"), start=1)}  # fmt: skip


class Actor:
    """Sessions at both doors, by name."""

    def __init__(self, directory: Path) -> None:
        self.address = Address(directory)
        self.messages, self.service = foreign_client.generate(directory)
        self.sessions: dict[str, Any] = {}
        self.kept: list[Any] = []
        self.begun: Any = None
        self.waits: list[Any] = []
        self.watches: dict[str, Any] = {}

    def uid(self) -> int:
        return os.getuid()

    def open(self, name: str, door: str = "grpc", **hello: Any) -> bytes:
        """The session's token; b"" at the local door, which needs none."""
        if door == "grpc":
            self.sessions[name] = Session(self.address, self.messages, self.service, **hello)
            return bytes(self.sessions[name].opened.token)
        self.sessions[name] = Lifeline(self.address, self.messages, **hello)
        return b""

    def call(self, session: str, verb: str, **fields: Any) -> bytes:
        """The answer's bytes. A received descriptor is kept open."""
        of = self.sessions[session]
        if isinstance(of, Session):
            if verb == "Watch":
                return bytes(self._stream(of, **fields).SerializeToString())
            return bytes(of.call(verb, **fields).SerializeToString())
        response = {"Receive": "AcquireResponse"}.get(verb, f"{verb}Response")
        answer = getattr(self.messages, response)()
        descriptor = of.ask(VERBS[verb], getattr(self.messages, f"{verb}Request")(**fields), answer)
        if descriptor is not None:
            self.kept.append(descriptor)
        return bytes(answer.SerializeToString())

    def told(self, session: str, verb: str, **fields: Any) -> dict[str, Any]:
        """The answer's fields."""
        answer = {"Receive": "AcquireResponse"}.get(verb, f"{verb}Response")
        message = getattr(self.messages, answer).FromString(self.call(session, verb, **fields))
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    def _stream(self, of: Session, **fields: Any) -> Any:
        """The first answer of a watch, which stays open."""
        stream = of.stub.Watch(self.messages.WatchRequest(**fields), metadata=of.metadata, timeout=foreign_client.PATIENCE_S)
        self.kept.append(stream)
        return next(stream)

    def watch(self, name: str, session: str, **fields: Any) -> None:
        """Opens a watch, which `hear` finds by this name."""
        if isinstance(self.sessions[session], Session):
            self._stream(self.sessions[session], **fields)
            self.watches[name] = self.kept[-1]
        else:
            self.watches[name] = (session, int(self.told(session, "Watch", **fields)["watch"]))

    def hear(self, name: str, until: str) -> list[dict[str, Any]]:
        """All events since the last call, up to the publication of a share of that name."""
        heard: list[dict[str, Any]] = []
        while not any((each["kind"], each.get("name")) == ("EVENT_KIND_PUBLISH", until) for each in heard):
            heard += self._news(self.watches[name])
        return heard

    def _news(self, watch: Any) -> list[dict[str, Any]]:
        if isinstance(watch, tuple):
            answer = self.told(watch[0], "Watch", watch=watch[1], timeout_ms=60_000)
        else:
            answer = json_format.MessageToDict(next(watch), preserving_proto_field_name=True)
        return list(answer.get("events", []))

    def wait_much(self, session: str, count: int, verb: str, **fields: Any) -> None:
        """Sends so many waiting requests and ignores their answers."""
        of = self.sessions[session]
        for _ in range(count):
            if isinstance(of, Session):
                self.waits.append(of.begin(verb, **fields))
            else:
                of.send(VERBS[verb], getattr(self.messages, f"{verb}Request")(**fields))

    def publish(self, session: str, name: str, content: bytes, namespace: str = "default", **fields: Any) -> int:
        published, mapping = self.sessions[session].publish(name, content, namespace, **fields)
        self.kept.append(mapping)
        return int(published.share)

    def read(self, session: str, name: str, namespace: str = "default") -> bytes:
        return bytes(self.sessions[session].read(name, namespace))

    def with_token(self, token: bytes, verb: str, **fields: Any) -> bytes:
        """Makes a call on a connection of this user with this session token."""
        with self.address.channel() as channel:
            request = getattr(self.messages, f"{verb}Request")(**fields)
            stub = self.service.BrokerStub(channel)
            answer = getattr(stub, verb)(request, metadata=[("arraybridge-session", token.hex())], timeout=60)
            return bytes(answer.SerializeToString())

    def join(self, token: bytes) -> None:
        self.kept.append(Lifeline(self.address, self.messages, token))

    def redeem(self, session: str, ticket: bytes) -> None:
        self.sessions[session].lifeline.redeem(self.messages.Ticket(token=ticket))

    def ticket(self) -> bytes:
        """The ticket of an arena in a new session."""
        self.open("of the ticket")
        return bytes(self.sessions["of the ticket"].call("Allocate", size=4096).ticket.token)

    def waiting(self, session: str) -> int:
        return int(self.sessions[session].call("GetStats").waiting)

    def begin(self, session: str, verb: str, **fields: Any) -> None:
        """Starts a request; `finish` returns its result."""
        self.begun = self.sessions[session].begin(verb, **fields)

    def finish(self) -> bytes:
        return bytes(self.begun.result().SerializeToString())

    def administer(self, verb: str, **fields: Any) -> bytes:
        messages = importlib.import_module("foreign_v1.admin_pb2")
        service = importlib.import_module("foreign_v1.admin_pb2_grpc")
        method = messages.DESCRIPTOR.services_by_name["Admin"].methods_by_name[verb]
        request = message_factory.GetMessageClass(method.input_type)(**fields)
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"unix:{self.address.directory}/admin.sock", options=options) as channel:
            call = getattr(service.AdminStub(channel), verb)
            try:
                return bytes(call(request, timeout=60).SerializeToString())
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAUTHENTICATED:
                    raise
                told = [each for each in error.trailing_metadata() if each[0] == "arraybridge-connection"]
                return bytes(call(request, timeout=60, metadata=told).SerializeToString())

    def flood(self, door: str, count: int) -> int:
        """Opens up to so many sessions; returns their number."""
        got = 0
        for index in range(count):
            try:
                self.open(f"flood{index}", door)
            except (grpc.RpcError, Refused, OSError, EOFError):
                break
            got += 1
        return got


def refusal_of(error: Exception) -> dict[str, Any]:
    if isinstance(error, grpc.RpcError):
        assert isinstance(error, grpc.Call)
        return {"code": error.code().value[0], "text": error.details()}
    assert isinstance(error, Refused)
    return {"code": error.code, "text": str(error)}


def main() -> None:
    actor = Actor(Path(sys.argv[1]))
    for line in sys.stdin:
        method, arguments, keywords = pickle.loads(bytes.fromhex(line))
        try:
            answer = getattr(actor, method)(*arguments, **keywords)
        except (grpc.RpcError, Refused) as error:
            answer = refusal_of(error)
        except (OSError, EOFError) as error:
            answer = {"code": None, "text": repr(error)}
        print(pickle.dumps(answer).hex(), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
