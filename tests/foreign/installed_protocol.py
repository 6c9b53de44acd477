# SPDX-License-Identifier: Apache-2.0
"""A client that knows only the installed folder of the protocol: the messages of its .proto files, and the numbers in the
tables of writing-a-client.md. It shares no code with our clients, nor with foreign_client."""

from __future__ import annotations

import array
import mmap
import os
import re
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

INTEGERS = {2: "H", 4: "I", 8: "Q"}  # unsigned, by their bytes
PACKAGE = "arraybridge.v1"


class Protocol:
    """The folder: rows of the page's tables, and classes of messages."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.page = (folder / "writing-a-client.md").read_text(encoding="utf-8")
        self.frame = {row["Field"]: (int(row["Offset"]), int(row["Bytes"])) for row in self.table("Offset")}
        self.limits = {row["Limit"]: int(row["Number"]) for row in self.table("Limit")}
        self.verbs = {row["Verb"]: int(row["Number"]) for row in self.table("Number")}
        self.flags = {row["Flag"]: int(row["Number"]) for row in self.table("Flag")}
        self.parts = {row["Part"]: row for row in self.table("Part")}
        self._pool = descriptor_pool.DescriptorPool()  # its own: other tests generate the same messages
        for file in compiled(folder, scratch).file:
            self._pool.Add(file)

    def table(self, first: str) -> list[dict[str, str]]:
        """The rows of the table whose first column has this title."""
        found = re.search(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", self.page, re.MULTILINE)
        assert found is not None, first
        titles, *rows = (cells(line) for line in [found[0].splitlines()[0], *found[1].splitlines()])
        return [dict(zip(titles, row, strict=True)) for row in rows]

    def socket(self, speaks: str) -> str:
        (name,) = (row["Socket"].strip("`") for row in self.table("Socket") if speaks in row["Speaks"])
        return name

    def message(self, kind: str, /, **fields: Any) -> Any:
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"{PACKAGE}.{kind}"))(**fields)

    def answer_name(self, verb: str) -> str:
        service = self._pool.FindServiceByName(f"{PACKAGE}.Broker")
        method = service.methods_by_name.get(verb)
        return str(method.output_type.name) if method and not method.server_streaming else f"{verb}Response"

    def header(self) -> tuple[struct.Struct, list[str]]:
        """The header's form, and its fields in their order."""
        names = sorted(self.frame, key=lambda name: self.frame[name][0])
        offset = 0
        for name in names:
            assert self.frame[name][0] == offset, "the fields leave no gap"
            offset += self.frame[name][1]
        assert "little-endian" in self.page
        return struct.Struct("<" + "".join(INTEGERS[self.frame[name][1]] for name in names)), names


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def compiled(folder: Path, scratch: Path) -> descriptor_pb2.FileDescriptorSet:
    from grpc_tools import protoc

    out = scratch / "descriptors"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.proto"))
    assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={out}", "--include_imports", *files]) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())


class Refusal(Exception):
    """An error answer: its status and reason."""


class Lifeline:
    """A connection to the lifeline. `join`: the token of a session at the gRPC door."""

    def __init__(self, protocol: Protocol, directory: Path, join: bytes = b"") -> None:
        self.protocol = protocol
        self._header, self._fields = protocol.header()
        self._request = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(str(directory / protocol.socket("frames")))
        hello = {"protocol_min": 1, "protocol_max": 1, "client": "page", "join": join}
        self.opened, _ = self.ask("OpenSession", capabilities={"kinds": ["HANDLE_KIND_MEMFD"]}, **hello)

    def ask(self, verb: str, **fields: Any) -> tuple[Any, list[int]]:
        """The answer and its descriptors, which the caller closes."""
        self._request += 1
        values = {"verb": self.protocol.verbs[verb], "flags": 0, "status": 0, "request": self._request}
        message = self.protocol.message(f"{verb}Request", **fields)
        self._socket.send(self._header.pack(*(values[name] for name in self._fields)) + message.SerializeToString())
        limits = self.protocol.limits
        room = socket.CMSG_SPACE(limits["descriptors"] * array.array("i").itemsize)
        frame, ancillary, _, _ = self._socket.recvmsg(limits["frame bytes"], room, socket.MSG_CMSG_CLOEXEC)
        got = dict(zip(self._fields, self._header.unpack_from(frame), strict=True))
        assert (got["verb"], got["request"]) == (values["verb"], values["request"])
        payload = frame[self._header.size :]
        if got["status"] != 0:
            error = self.protocol.message("Error")
            error.ParseFromString(payload)
            raise Refusal(got["status"], error.reason)
        answer = self.protocol.message(self.protocol.answer_name(verb))
        answer.ParseFromString(payload)
        return answer, descriptors_in(ancillary)

    def close(self) -> None:
        self._socket.close()


def descriptors_in(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        found.frombytes(data)
    return list(found)


class GrpcSession:
    """A session at the gRPC door, without generated stubs, and the lifeline that redeems its tickets."""

    def __init__(self, protocol: Protocol, directory: Path) -> None:
        self._protocol = protocol
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"unix:{directory / protocol.socket('arraybridge.v1.Broker')}", options=options)
        hello = protocol.message("OpenSessionRequest", protocol_min=1, protocol_max=1, client="page")
        opens = self._channel.unary_stream(
            f"/{PACKAGE}.Broker/OpenSession",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=lambda data: read(protocol.message("SessionEvent"), data),
        )
        self._stream = opens(hello)
        token = next(self._stream).opened.token
        self._metadata = [("arraybridge-session", token.hex())]
        self.lifeline = Lifeline(protocol, directory, join=token)

    def ask(self, verb: str, **fields: Any) -> Any:
        call = self._channel.unary_unary(
            f"/{PACKAGE}.Broker/{verb}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=lambda data: read(self._protocol.message(self._protocol.answer_name(verb)), data),
        )
        return call(self._protocol.message(f"{verb}Request", **fields), metadata=self._metadata)

    def redeem(self, ticket: Any) -> int:
        _, descriptors = self.lifeline.ask("Redeem", token=ticket.token)
        return descriptors[0]

    def close(self) -> None:
        self.lifeline.close()
        self._stream.cancel()
        self._channel.close()


def read(message: Any, data: bytes) -> Any:
    message.ParseFromString(data)
    return message


def write_into(descriptor: int, arena_size: int) -> mmap.mmap:
    """The arena mapped writable; the descriptor is closed."""
    try:
        return mmap.mmap(descriptor, arena_size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    finally:
        os.close(descriptor)


def read_from(descriptor: int, share: Any) -> bytes:
    """The bytes of the share's first array; the descriptor is closed."""
    handle, spec = share.handle, share.specs.arrays[0]
    begin = handle.offset + spec.offset
    try:
        with mmap.mmap(descriptor, handle.arena_size, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
            return mapping[begin : begin + spec.size]
    finally:
        os.close(descriptor)
