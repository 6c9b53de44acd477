# SPDX-License-Identifier: Apache-2.0
"""docs/guides/writing-a-client.md and the .proto files, as they are installed, suffice to write a client. This one has its
numbers from the page's tables."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from foreign_client import BUILD, ROOT, Daemon
from installed_protocol import GrpcSession, Lifeline, Protocol, Refusal, read_from, write_into

SPEC = {"code": 2, "bits": 32, "lanes": 1, "dtype": "float32", "shape": [4, 256], "size": 4096}


@pytest.fixture(scope="module")
def protocol(tmp_path_factory: pytest.TempPathFactory) -> Protocol:
    prefix = tmp_path_factory.mktemp("prefix")
    command = ["cmake", "--install", BUILD, "--prefix", prefix, "--component", "Protocol"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Protocol(prefix / "share/arraybridge/proto", tmp_path_factory.mktemp("scratch"))


@pytest.fixture
def connect(daemon: Daemon, protocol: Protocol) -> Iterator[Callable[..., Any]]:
    """Opens connections of a class to the daemon."""
    opened: list[Any] = []

    def connected(kind: type = Lifeline) -> Any:
        opened.append(kind(protocol, daemon.directory))
        return opened[-1]

    yield connected
    for each in opened:
        each.close()


def publish(ask: Callable[..., Any], handle: Any, name: str, **more: Any) -> None:
    """The array at the second multiple of 256 bytes of the arena."""
    place = {"arena": handle.arena, "arena_generation": handle.generation, "offset": 256, "size": 4096}
    ask("Publish", namespace="default", name=name, specs={"arrays": [SPEC]}, **place, **more)


def test_an_array_goes_from_one_connection_to_another(connect: Callable[..., Any]) -> None:
    content = os.urandom(4096)
    writer, reader = connect(), connect()
    allocated, (descriptor,) = writer.ask("Allocate", namespace="default", size=8192)
    mapping = write_into(descriptor, allocated.handle.arena_size)
    writer.ask("Mapped", arena=allocated.handle.arena)
    mapping[256 : 256 + 4096] = content
    publish(writer.ask, allocated.handle, "frame")
    mapping.close()
    writer.ask("Release", arenas=[allocated.handle.arena])

    acquired, (descriptor,) = reader.ask("Acquire", namespace="default", shares=[{"name": "frame"}])
    share = acquired.shares[0].share
    assert acquired.descriptor_arena == share.handle.arena
    assert (share.specs.arrays[0].dtype, list(share.specs.arrays[0].shape)) == ("float32", [4, 256])
    assert read_from(descriptor, share) == content
    assert reader.ask("Release", leases=[acquired.shares[0].lease], unmapped=[share.handle.arena])[0].released == 1


def test_a_share_is_forwarded(connect: Callable[..., Any]) -> None:
    writer, relay, reader = connect(), connect(), connect()
    allocated, (descriptor,) = writer.ask("Allocate", namespace="default", size=8192)
    mapping = write_into(descriptor, allocated.handle.arena_size)
    writer.ask("Mapped", arena=allocated.handle.arena)
    mapping[256 : 256 + 4096] = bytes(range(256)) * 16
    publish(writer.ask, allocated.handle, "source")
    mapping.close()
    acquired, (descriptor,) = relay.ask("Acquire", namespace="default", shares=[{"name": "source"}])
    os.close(descriptor)
    (granted,) = acquired.shares
    writer.ask("Withdraw", namespace="default", shares=[{"name": "source"}])
    publish(relay.ask, granted.share.handle, "forward", source={"lease": granted.lease})
    relay.ask("Release", leases=[granted.lease])
    with pytest.raises(Refusal) as refused:
        publish(relay.ask, granted.share.handle, "late", source={"lease": granted.lease})
    assert refused.value.args == (9, "NOT_FORWARDED")
    forwarded, (descriptor,) = reader.ask("Acquire", namespace="default", shares=[{"name": "forward"}])
    share = forwarded.shares[0].share
    assert (share.handle.arena, share.handle.offset) == (allocated.handle.arena, 256)
    assert read_from(descriptor, share) == bytes(range(256)) * 16


def test_an_array_goes_by_tickets(connect: Callable[..., Any]) -> None:
    content = os.urandom(4096)
    writer, reader = connect(GrpcSession), connect(GrpcSession)
    allocated = writer.ask("Allocate", namespace="default", size=8192)
    mapping = write_into(writer.redeem(allocated.ticket), allocated.handle.arena_size)
    writer.ask("Mapped", arena=allocated.handle.arena)
    mapping[256 : 256 + 4096] = content
    publish(writer.ask, allocated.handle, "frame")

    acquired = reader.ask("Acquire", namespace="default", shares=[{"name": "frame"}])
    assert read_from(reader.redeem(acquired.tickets[0]), acquired.shares[0].share) == content
    assert reader.ask("Release", leases=[acquired.shares[0].lease]).released == 1
    mapping.close()
    with pytest.raises(Refusal):
        writer.lifeline.ask("Publish")  # a lifeline that joined a session only redeems


def test_the_page_has_the_size_of_a_frame(connect: Callable[..., Any], protocol: Protocol) -> None:
    assert connect().opened.server.limits.frame_bytes_max == protocol.limits["frame bytes"]


def test_an_error_has_a_status_and_a_reason(connect: Callable[..., Any]) -> None:
    with pytest.raises(Refusal) as refused:
        connect().ask("Acquire", namespace="default", shares=[{"name": "nowhere"}])
    status, reason = refused.value.args
    assert status == 5 and re.fullmatch("[A-Z_]*", reason)


def test_pages_come_with_as_many_descriptors_as_the_page_says(connect: Callable[..., Any], protocol: Protocol) -> None:
    sender, receiver = connect(), connect()
    allocated, (descriptor,) = sender.ask("Allocate", namespace="default", size=8192)
    mapping = write_into(descriptor, allocated.handle.arena_size)
    sender.ask("Mapped", arena=allocated.handle.arena)
    publish(sender.ask, allocated.handle, "frame")
    ends = [
        line.ask("OpenChannel", namespace="default", name="frames", role=role)[0]
        for line, role in ((sender, "SENDER"), (receiver, "RECEIVER"))
    ]
    found = {}
    for name, row in protocol.parts.items():
        channel = {"channel": ends[0].channel} if "CHANNEL" in name else {}
        _, descriptors = sender.ask("Browse", namespace="default", part=int(row["Number"]), **channel)
        found[name] = len(descriptors)
        for each in descriptors:
            os.close(each)
    assert found == {name: int(row["Descriptors"].split(":")[0]) for name, row in protocol.parts.items()}
    assert max(found.values()) == protocol.limits["descriptors"]
    mapping.close()


def numbers_of(enum: str) -> dict[str, int]:
    """The members of an enum in frame.h."""
    header = (ROOT / "proto/boundary/frame.h").read_text()
    body = re.search(rf"enum (?:class )?{enum} : uint16_t \{{\n(.*?)\n\}};", header, re.DOTALL)
    assert body is not None
    return {name: int(number) for name, number in re.findall(r"^  k(\w+) = (\d+)", body[1], re.MULTILINE)}


def test_the_page_has_every_verb_flag_and_part(protocol: Protocol) -> None:
    assert protocol.verbs == numbers_of("Verb")
    assert {f"Frame{name.title().replace('_', '')}": number for name, number in protocol.flags.items()} == numbers_of("FrameFlags")
    parts = protocol.message("BrowseRequest").DESCRIPTOR.enum_types_by_name["Part"].values_by_name
    assert {name: int(row["Number"]) for name, row in protocol.parts.items()} == {name: part.number for name, part in parts.items()}


def test_the_page_has_the_sockets_of_a_broker(daemon: Daemon, protocol: Protocol) -> None:
    there = {row["Socket"].strip("`") for row in protocol.table("Socket")}
    assert {"lifeline.sock", "broker.sock"} <= {path.name for path in daemon.directory.glob("*.sock")} <= there
