# SPDX-License-Identifier: Apache-2.0
"""Reads a share without a library of ours, as a client in any language can: gRPC for the verbs, one socket for the memory.

    python client.py DIRECTORY NAME

The daemon describes its own messages (gRPC reflection), so that no code is generated.
"""

import array
import mmap
import socket
import struct
import sys
from typing import Any

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

directory, name = sys.argv[1:]
door = grpc.insecure_channel(f"unix:{directory}/broker.sock")
pool = DescriptorPool(ProtoReflectionDescriptorDatabase(door))
lifeline = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
lifeline.connect(f"{directory}/lifeline.sock")
HEADER = struct.Struct("<HHIQ")  # verb, flags, status, request
OPEN_SESSION, REDEEM = 1, 12


def kind(message: str) -> Any:
    return GetMessageClass(pool.FindMessageTypeByName(f"arraybridge.v1.{message}"))


def call(verb: str, session: str, **fields: Any) -> Any:
    remote = door.unary_unary(
        f"/arraybridge.v1.Broker/{verb}", lambda message: message.SerializeToString(), kind(f"{verb}Response").FromString
    )
    return remote(kind(f"{verb}Request")(**fields), metadata=[("arraybridge-session", session)])


def ask(verb: int, message: str, **fields: Any) -> list[int]:
    """A request on the lifeline; the descriptors of its answer."""
    lifeline.send(HEADER.pack(verb, 0, 0, verb) + kind(message)(**fields).SerializeToString())
    frame, ancillary, _, _ = lifeline.recvmsg(65536, socket.CMSG_SPACE(5 * 4), socket.MSG_CMSG_CLOEXEC)
    status = HEADER.unpack_from(frame)[2]
    assert status == 0, kind("Error").FromString(frame[HEADER.size :])
    return [each for _, _, data in ancillary for each in array.array("i", data)]


opens = door.unary_stream(
    "/arraybridge.v1.Broker/OpenSession", lambda message: message.SerializeToString(), kind("SessionEvent").FromString
)
stream = opens(kind("OpenSessionRequest")(protocol_min=1, protocol_max=1, client="example"))
token = next(stream).opened.token  # the session lives as long as the stream
ask(OPEN_SESSION, "OpenSessionRequest", protocol_min=1, protocol_max=1, join=token)
acquired = call("Acquire", token.hex(), namespace="default", shares=[{"name": name}], timeout_ms=10_000)
(descriptor,) = ask(REDEEM, "RedeemRequest", token=acquired.tickets[0].token)
granted = acquired.shares[0]
with mmap.mmap(descriptor, granted.share.handle.arena_size, prot=mmap.PROT_READ) as memory:
    spec, start = granted.share.specs.arrays[0], granted.share.handle.offset
    content = memory[start + spec.offset : start + spec.offset + spec.size]
    print(f"{name}: {spec.dtype}{list(spec.shape)}, {len(content)} bytes, the first {content[:4].hex(' ')}")
call("Release", token.hex(), leases=[granted.lease])
